// What each task asks for: the fields of the form, examples to start with, and the inputs of a
// request made of them.

const text = { name: "text", label: "Text", rows: 5 };
const second = { name: "text_pair", label: "Second text", rows: 3 };
// only for models that were trained on pairs of texts, which then need both
const ofPairs = { ...second, pairs: true };
const texts = { name: "texts", label: "Texts, one a line", rows: 6 };

export function lines(value) {
  return value.split("\n").map((line) => line.trim()).filter(Boolean);
}

function oneOrTwo(values) {
  return [values.text_pair === undefined ? values.text : { text: values.text, text_pair: values.text_pair }];
}

const reviews = [
  { name: "a good one", values: { text: "A warm, funny and surprisingly wise film. We stayed until the last name of the credits." } },
  { name: "a bad one", values: { text: "Two hours of noise, and not one idea in it." } },
  { name: "a message", values: { text: "My parcel has not arrived, although it was sent nine days ago. Where is it?" } },
];
const pairs = [
  { name: "the same", values: { text: "The cat sleeps on the sofa.", text_pair: "A cat is lying on a couch, asleep." } },
  { name: "not the same", values: { text: "The cat sleeps on the sofa.", text_pair: "Trains to the coast leave every hour." } },
];
const passage = "The lighthouse on Skerry Point was built in 1887 by Anna Morrow, an engineer from Leith. "
  + "Its lamp burned paraffin until 1934, when a cable brought electricity from the mainland. "
  + "Since 1998 nobody has lived there; two volunteers row over on Sundays to clean the glass.";
const cities = "Berlin is the capital of Germany.\nHow to bake bread without yeast\n"
  + "The train to the coast leaves at noon.\nA recipe for a loaf with sour dough\nParis is the capital of France.";

export const TASKS = {
  classes: { title: "Class of a text", fields: [text, ofPairs], examples: [...reviews, ...pairs], inputs: oneOrTwo },
  "multi-label": { title: "Several labels of a text", fields: [text, ofPairs], examples: [...reviews, ...pairs], inputs: oneOrTwo },
  regression: { title: "A number for a text", fields: [text, ofPairs], examples: [...reviews, ...pairs], inputs: oneOrTwo },
  tags: {
    title: "Tags in a text",
    fields: [text],
    examples: [
      { name: "people and places", values: { text: "Ada Lovelace met Charles Babbage in London; the Royal Society printed her notes in 1843." } },
      { name: "a booking", values: { text: "Please book a table for four at Casa Pepe in Seville next Friday at eight." } },
    ],
    inputs: ({ text }) => [text],
  },
  spans: {
    title: "The answer in a passage",
    fields: [{ name: "question", label: "Question", rows: 2 }, { name: "context", label: "Passage", rows: 8 }],
    examples: [
      { name: "who", values: { question: "Who built the lighthouse?", context: passage } },
      { name: "when", values: { question: "When did the lighthouse get electricity?", context: passage } },
      { name: "not answered", values: { question: "How high is the lighthouse?", context: passage } },
    ],
    inputs: ({ question, context }) => [{ question, context }],
  },
  choices: {
    title: "One of several choices",
    fields: [
      { ...text, label: "Text or question" },
      { name: "choices", label: "Choices, one a line", rows: 4 },
      { name: "context", label: "Passage, if the question is about one", rows: 5, optional: true },
    ],
    examples: [
      { name: "who", values: { text: "Who built the lighthouse?", choices: "two volunteers\nan engineer from Leith\na cable", context: passage } },
      { name: "what next", values: { text: "She put the bread into the oven and set the clock.", choices: "Half an hour later the kitchen smelled of it.\nThe bread swam to the other shore.\nThe clock was voted into parliament.", context: "" } },
    ],
    inputs: ({ text, choices, context }) => [
      { ...(context.trim() ? { question: text, context } : { text }), choices: lines(choices) },
    ],
  },
  "fill-mask": {
    title: "The missing word",
    fields: [{ ...text, label: "Text with [MASK] for each missing word", insert: "[MASK]" }],
    examples: [
      { name: "a door", values: { text: "She opened the [MASK] and looked out." } },
      { name: "a capital", values: { text: "Paris is the [MASK] of France." } },
      { name: "two gaps", values: { text: "The [MASK] sat on the [MASK]." } },
    ],
    inputs: ({ text }) => [text],
  },
  "next-sentence": {
    title: "Does one text follow another?",
    fields: [text, second],
    examples: [
      { name: "follows", values: { text: "He put the kettle on.", text_pair: "Soon the water boiled, and he made tea." } },
      { name: "does not", values: { text: "He put the kettle on.", text_pair: "The parliament of Norway has 169 members." } },
    ],
    inputs: ({ text, text_pair }) => [{ text, text_pair }],
  },
  ranking: {
    title: "Texts ranked for a query",
    fields: [{ name: "query", label: "Query", rows: 2 }, texts],
    examples: [{ name: "bread", values: { query: "how do I bake bread?", texts: cities } }],
    inputs: ({ query, texts }) => [{ query, texts: lines(texts) }],
  },
  vectors: {
    title: "The nearest texts, by vectors",
    fields: [{ name: "query", label: "Text to compare", rows: 2 }, texts],
    examples: [
      { name: "bread", values: { query: "how do I bake bread?", texts: cities } },
      { name: "capitals", values: { query: "Rome is the capital of Italy.", texts: cities } },
    ],
    inputs: ({ query, texts }) => [query, ...lines(texts)],
  },
};

// A task that this page does not know can still be asked with one text.
export const UNKNOWN = { title: "", fields: [text], examples: [], inputs: ({ text }) => [text] };

export function taskOf(name) {
  return Object.hasOwn(TASKS, name) ? TASKS[name] : { ...UNKNOWN, title: name };
}
