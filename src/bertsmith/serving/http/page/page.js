// The page: picks a model and a task, sends what is typed, and shows the answer or the problem.
// Addresses are relative, so that the page works below any path of a reverse proxy.

import { drawn, element } from "./answers.js";
import { taskOf } from "./tasks.js";

const PAUSE = 350; // milliseconds without a key before an answer while typing
const byId = (id) => document.getElementById(id);
const state = { models: [], values: {}, asking: null, number: 0, timer: 0 };

function asSentence(text) {
  return text && text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

// Words for what went wrong; the server's own message comes first where it names the mistake.
export function wordsFor(status, body, retryAfter) {
  const error = body?.error;
  const said = (typeof error === "string" ? error : error?.message) ?? "";
  // the remedy for programs is a box on this page
  const message = asSentence(said.replace(/; "truncate": true .*$/, ""));
  if (status === 0) return "The server cannot be reached. Is it still running?";
  if (status === 401 || status === 403) return byId("key").value ? "The server does not know this key." : "The server requires a key.";
  if (status === 429) {
    const seconds = Number(retryAfter);
    const wait = seconds > 0 ? ` Try again in ${seconds} second${seconds === 1 ? "" : "s"}.` : " Try again soon.";
    return `The server is busy: its queue is full.${wait}`;
  }
  if (status === 503) return `The server cannot answer now: it is starting, stopping, or a worker was replaced. Try again soon.${message ? ` (${message})` : ""}`;
  if (status === 504 || status === 408) return `The answer took too long.${message ? ` (${message})` : ""}`;
  if (status >= 500) return `The server failed (${status}). ${message}`.trim();
  const remedy = /\btokens\b/.test(message) && !byId("truncate").checked ? " Shorten the text, or tick “Cut off texts that are too long”." : "";
  return `${message || `The server refused this (${status}).`}${remedy}`;
}

function problem(words) {
  byId("problem").textContent = words;
  document.body.dataset.state = "problem";
}

async function send(path, options) {
  const key = byId("key").value;
  const headers = { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw Object.assign(new Error("unreachable"), { words: wordsFor(0) });
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  if (response.status === 401) byId("key-field").hidden = false;
  throw Object.assign(new Error("refused"), { words: wordsFor(response.ok ? 502 : response.status, body, response.headers.get("Retry-After")) });
}

const model = () => state.models[byId("model").selectedIndex];
const task = () => byId("task").value;

function options(select, names, titles) {
  select.replaceChildren(...names.map((name, at) => {
    const option = element("option", {}, titles[at]);
    option.value = name;
    return option;
  }));
}

function field(each) {
  const id = `field-${each.name}`;
  const area = element("textarea", { id, rows: each.rows, dir: "auto", spellcheck: "false", autocomplete: "off" });
  area.value = state.values[each.name] ?? "";
  area.addEventListener("input", () => {
    state.values[each.name] = area.value;
    if (byId("live").checked) later();
  });
  const label = element("label", { for: id }, each.label);
  const box = element("p", { class: "field" }, label, area);
  if (each.insert) {
    const button = element("button", { type: "button", class: "quiet" }, `Insert ${each.insert}`);
    button.addEventListener("click", () => {
      area.setRangeText(each.insert, area.selectionStart, area.selectionEnd, "end");
      area.dispatchEvent(new Event("input"));
      area.focus();
    });
    box.append(button);
  }
  return box;
}

const shownFields = () => taskOf(task()).fields.filter((each) => !each.pairs || model().pairs);

// Examples with as many texts as the model reads.
function examples() {
  const names = shownFields().map((each) => each.name);
  return taskOf(task()).examples.filter(({ values }) => {
    const given = Object.keys(values);
    return given.length === names.length && given.every((name) => names.includes(name));
  });
}

function showFields() {
  byId("fields").replaceChildren(...shownFields().map(field));
  const label = byId("examples-label");
  const buttons = examples().map(({ name, values }) => {
    const button = element("button", { type: "button", class: "quiet" }, name);
    button.addEventListener("click", () => {
      Object.assign(state.values, values);
      showFields();
      ask();
    });
    return button;
  });
  byId("examples").replaceChildren(label, ...buttons);
  byId("examples").hidden = buttons.length === 0;
}

function clear() {
  state.asking?.abort();
  state.number += 1;
  for (const id of ["problem", "summary"]) byId(id).textContent = "";
  byId("cost").textContent = "Type, or take an example.";
  byId("answer").replaceChildren();
  byId("answer").removeAttribute("aria-busy");
  document.body.dataset.state = "ready";
}

function showTasks() {
  const names = model().can ?? [model().kind];
  options(byId("task"), names, names.map((name) => taskOf(name).title));
  const { name, max_input_length: longest, precision, labels } = model();
  const facts = [name, precision, labels?.length > 1 ? `${labels.length} labels` : "", longest ? `up to ${longest.toLocaleString("en")} tokens` : ""];
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  showFields();
  clear();
}

function missing(values) {
  return shownFields().find((each) => !each.optional && !values[each.name].trim());
}

// A request, unless a field is empty, which gets the focus unless one is typing elsewhere.
function question(typing) {
  const values = Object.fromEntries(shownFields().map((each) => [each.name, (state.values[each.name] ?? "").toWellFormed()]));
  const empty = missing(values);
  if (empty && !typing) {
    problem(`The field “${empty.label}” is empty.`);
    byId(`field-${empty.name}`).focus();
  }
  return empty ? null : values;
}

function later() {
  clearTimeout(state.timer);
  state.timer = setTimeout(() => ask(true), PAUSE);
}

async function ask(typing = false) {
  clearTimeout(state.timer);
  if (state.models.length === 0) return open();
  const name = task();
  const asked = model();
  state.asking?.abort();
  const number = (state.number += 1);
  byId("problem").textContent = "";
  const values = question(typing);
  if (values === null) {
    // an answer to what stood there before is waited for no more
    byId("answer").removeAttribute("aria-busy");
    if (typing) clear();
    return;
  }
  document.body.dataset.state = "asking";
  byId("answer").setAttribute("aria-busy", "true");
  state.asking = new AbortController();
  const began = performance.now();
  const body = { model: asked.name, task: name, inputs: taskOf(name).inputs(values), truncate: byId("truncate").checked };
  try {
    const answer = await send("answer", { method: "POST", body: JSON.stringify(body), signal: state.asking.signal });
    if (number === state.number) show(name, answer, values, asked, performance.now() - began);
  } catch (error) {
    if (error.name === "AbortError" || number !== state.number) return;
    byId("summary").textContent = "";
    byId("cost").textContent = "";
    byId("answer").replaceChildren();
    problem(error.words ?? `The answer could not be shown: ${error.message}`);
  } finally {
    if (number === state.number) byId("answer").removeAttribute("aria-busy");
    // on a small screen the answer lies below what is seen
    if (number === state.number && !typing) byId("result").scrollIntoView({ block: "nearest" });
  }
}

function show(name, answer, values, asked, waited) {
  const { summary, parts } = drawn(name, answer.answers, values, asked);
  byId("answer").replaceChildren(...parts);
  byId("summary").replaceChildren(...summary);
  const tokens = answer.tokens === undefined ? "" : ` · ${answer.tokens} token${answer.tokens === 1 ? "" : "s"}`;
  const inside = typeof answer.milliseconds === "number" ? `${answer.milliseconds.toFixed(1)} ms in the server · ` : "";
  byId("cost").textContent = `${inside}${waited.toFixed(0)} ms in total${tokens}`;
  document.body.dataset.state = "answered";
}

async function open() {
  try {
    const info = await send("info", { method: "GET" });
    state.models = info.models ?? [];
  } catch (error) {
    const locked = !byId("key-field").hidden;
    byId("facts").textContent = locked ? "The models are named once the key is given." : "No models yet.";
    if (locked) byId("key").focus();
    return problem(error.words ?? error.message);
  }
  if (state.models.length === 0) return problem("The server names no models.");
  byId("problem").textContent = "";
  options(byId("model"), state.models.map(({ name }) => name), state.models.map(({ name }) => name));
  return showTasks();
}

byId("model").addEventListener("change", showTasks);
byId("task").addEventListener("change", () => {
  showFields();
  clear();
});
byId("question").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
byId("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    ask();
  }
});
open();
