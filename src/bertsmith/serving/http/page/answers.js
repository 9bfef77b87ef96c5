// Answers drawn as elements, and said in one sentence for screen readers, in parts. Whatever a server or a
// person wrote becomes text by textContent alone; the page's policy forbids everything else.

import { lines } from "./tasks.js";

const HUES = 8;
const SAID = 8; // tags that a summary names

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// A text of others in the direction of its own letters, which does not turn round what is beside it.
function isolated(text) {
  return element("bdi", {}, text);
}

function listed(texts, between = ", ") {
  return texts.flatMap((text, at) => (at ? [between, isolated(text)] : [isolated(text)]));
}

export function percent(share) {
  if (typeof share !== "number" || !Number.isFinite(share)) return "–";
  const value = 100 * share;
  return value < 0.01 ? "< 0.01 %" : `${value.toFixed(value < 10 ? 2 : 1)} %`;
}

function figure(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "–";
  return value !== 0 && Math.abs(value) < 0.1 ? value.toPrecision(3) : value.toFixed(3);
}

// Rows with a bar from 0 to 1; the figure stands beside it as text, so that the bar is decoration.
function bars(rows) {
  return element("ol", { class: "bars" }, ...rows.map(({ what, shown, share, best, of }) => {
    const inner = element("span");
    inner.style.width = `${100 * Math.min(1, Math.max(0, share || 0))}%`;
    return element(
      "li", { class: best ? "best" : "" },
      element("span", { class: "what", dir: "auto" }, what, ...(of ? [element("span", { class: "hint" }, ` ${of}`)] : [])),
      element("span", { class: "figure" }, shown),
      element("span", { class: "bar", "aria-hidden": "true" }, inner),
    );
  }));
}

// Parts of a text marked. Places count characters as Python does, by code point.
function marked(value, places, mark) {
  const characters = Array.from(value);
  const box = element("div", { class: "text", dir: "auto" });
  let done = 0;
  for (const place of [...places].sort((one, other) => one.start - other.start)) {
    const start = Math.max(done, place.start);
    if (start >= place.end) continue;
    box.append(characters.slice(done, start).join(""), mark(place, characters.slice(start, place.end).join("")));
    done = place.end;
  }
  box.append(characters.slice(done).join(""));
  return box;
}

function truncated(answer) {
  return answer.truncated ? " (the text was cut off)" : "";
}

function asRows(scores, labels = []) {
  return scores.map((each, at) => (typeof each === "number" ? { label: labels[at] ?? String(at + 1), score: each } : each));
}

const byScore = (one, other) => other.score - one.score;

function classes([answer], asked, model) {
  const rows = asRows(answer.scores ?? [answer]).sort(byScore);
  const all = model.labels?.length ?? 0;
  const some = rows.length < all ? element("p", { class: "hint" }, `The most probable of ${all} classes.`) : "";
  return {
    summary: [isolated(answer.label ?? "no class is probable enough"), `, ${percent(answer.score)}${truncated(answer)}`],
    parts: [bars(rows.map(({ label, score }) => ({ what: label, share: score, shown: percent(score), best: label === answer.label }))), some],
  };
}

function multiLabel([answer], asked, model) {
  const chosen = new Set(answer.labels);
  const rows = asRows(answer.scores, model.labels).sort(byScore);
  return {
    summary: [...(chosen.size ? listed([...chosen]) : ["none of the labels"]), truncated(answer)],
    parts: [bars(rows.map(({ label, score }) => ({ what: label, share: score, shown: percent(score), best: chosen.has(label), of: chosen.has(label) ? "(chosen)" : "" })))],
  };
}

function regression([answer], asked, model) {
  const values = Array.isArray(answer.value) ? answer.value : [answer.value];
  const names = model.labels?.length === values.length && values.length > 1 ? model.labels : [];
  const shown = values.flatMap((value, at) => [at ? ", " : " ", ...(names[at] ? [isolated(names[at]), ": "] : []), figure(value)]);
  return { summary: ["Value", ...shown, truncated(answer)], parts: [] };
}

function tags([answer], { text }) {
  const found = answer.entities;
  const names = [...new Set(found.map((each) => each.label))].sort();
  const hue = (label) => `hue hue-${names.indexOf(label) % HUES}`;
  const count = (label) => found.filter((each) => each.label === label).length;
  const mark = (place, words) => element(
    "mark", { class: hue(place.label), title: percent(place.score) }, words, element("span", { class: "name" }, " ", isolated(place.label)),
  );
  const legend = element("ul", { class: "legend", "aria-label": "Legend" }, ...names.map(
    (label) => element("li", { class: hue(label) }, element("bdi", { class: "name" }, label), ` ${count(label)}`),
  ));
  const more = found.length > SAID ? `; and ${found.length - SAID} more` : "";
  const said = found.slice(0, SAID).flatMap((each, at) => [at ? "; " : "", isolated(each.text), ": ", isolated(each.label)]);
  return {
    summary: [...(found.length ? [`${found.length} found: `, ...said, more] : ["Nothing found"]), truncated(answer)],
    parts: [...(names.length ? [legend] : []), marked(text, found, mark)],
  };
}

function spans([answer], { context }) {
  const none = answer.answer === null || answer.answer === undefined;
  const places = none ? [] : [{ start: answer.start, end: answer.end }];
  return {
    summary: [...(none ? ["The passage contains no answer"] : [isolated(answer.answer), `, ${percent(answer.score)}`]), truncated(answer)],
    parts: [marked(context, places, (place, words) => element("mark", {}, words))],
  };
}

function choices([answer], asked) {
  const options = lines(asked.choices);
  const rows = asRows(answer.scores, options);
  const name = options[answer.choice] ?? "None is certain enough";
  return {
    summary: [isolated(name), truncated(answer)],
    parts: [bars(rows.map(({ score }, at) => ({ what: options[at], share: score, shown: percent(score), best: at === answer.choice })))],
  };
}

function fillMask([answer], { text }) {
  const first = (each) => each.candidates[0] ?? { text: "–" };
  const word = (each) => (each.text ?? each.token).trim();
  const rows = (each) => bars(each.candidates.map((one, at) => ({ what: word(one), share: one.score, shown: percent(one.score), best: at === 0 })));
  const filled = marked(text, answer.masks, (place) => element("mark", {}, word(first(place))));
  const parts = answer.masks.flatMap((each, at) => [
    ...(answer.masks.length > 1 ? [element("h3", {}, `Gap ${at + 1}`)] : []), rows(each),
  ]);
  return { summary: [...listed(answer.masks.map((each) => word(first(each)))), truncated(answer)], parts: [filled, ...parts] };
}

function nextSentence([answer]) {
  const follows = answer.score >= 0.5;
  const rows = [["follows", answer.score, follows], ["does not follow", 1 - answer.score, !follows]];
  return {
    summary: [`The second text ${follows ? "follows" : "does not follow"}, ${percent(follows ? answer.score : 1 - answer.score)}${truncated(answer)}`],
    parts: [bars(rows.map(([what, share, best]) => ({ what, share, shown: percent(share), best })))],
  };
}

// Texts by their scores; scores that are no shares get bars from the lowest to the highest.
function ranked(options, scores) {
  const order = scores.map((score, at) => ({ score, text: options[at] })).sort(byScore);
  const [highest, lowest] = [order[0]?.score, order.at(-1)?.score];
  const share = (score) => (highest > 1 || lowest < -1 ? (score - lowest) / (highest - lowest || 1) : score);
  return order.map(({ score, text }, at) => ({ what: text, share: share(score), shown: figure(score), best: at === 0 }));
}

function ranking([answer], asked) {
  const rows = ranked(lines(asked.texts), asRows(answer.scores).map((each) => each.score));
  return { summary: ["First: ", isolated(rows[0].what), truncated(answer)], parts: [bars(rows)] };
}

export function cosine(one, other) {
  const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  const norms = Math.sqrt(dot(one, one) * dot(other, other));
  return norms > 0 ? dot(one, other) / norms : 0;
}

function vectors([query, ...others], asked) {
  const width = `Vectors of ${query.vector.length} numbers; the bars show cosines.`;
  const rows = ranked(lines(asked.texts), others.map((each) => cosine(query.vector, each.vector)));
  const cut = [query, ...others].some((each) => each.truncated) ? " (texts were cut off)" : "";
  const summary = rows.length ? ["Nearest: ", isolated(rows[0].what), cut] : [`A vector of ${query.vector.length} numbers${cut}`];
  return { summary, parts: [bars(rows), element("p", { class: "hint" }, width)] };
}

const DRAWN = {
  classes, "multi-label": multiLabel, regression, tags, spans, choices, ranking, vectors,
  "fill-mask": fillMask, "next-sentence": nextSentence,
};

// The answers to a question: a sentence, and elements. What is not known is shown as JSON.
export function drawn(task, answers, asked, model) {
  if (Object.hasOwn(DRAWN, task)) return DRAWN[task](answers, asked, model);
  return { summary: ["Answered"], parts: [element("pre", { tabindex: "0" }, JSON.stringify(answers, null, 2))] };
}
