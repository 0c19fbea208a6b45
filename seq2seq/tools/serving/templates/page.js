"use strict";

const DELAY = 200; // ms without a keystroke until the text is translated
const DETAILS_DELAY = 400; // ms that a line stays current until its alternatives are searched
const SLOW = 400; // ms until the page says that it waits
const UNCERTAIN = 0.5; // words of a lower probability are marked
const FAINT = 0.04; // smaller weights are not marked in the source
const MANY = 60; // words of a line of which the heat map is shown at once
const RARE = 0.001; // words of a lower probability are not offered in place of one
const CHOICES = 8; // words that are searched in place of one
const LONG = 2000; // characters of a text that the address holds
const SPACE = "\u2581"; // starts a word in SentencePiece's tokens
const END = "</s>";
const WITHOUT_SPACES = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/u;

const element = (id) => document.getElementById(id);
const [pair, swap, src, backdrop, tgt, message, hint] =
  ["pair", "swap", "src", "backdrop", "tgt", "status", "hint"].map(element);
let lines = []; // translated lines, as `show` makes them
let current = null; // [line, word] of the marked word
let pinned = null; // the word that a click, a tap or a key chose
let shownLine = -1; // line of the heat map
let typing = 0, waiting = 0, searching = 0; // timers
let request = new AbortController(), details = new AbortController(), others = new AbortController();

// Words

function surface(tokens) {
  const bytes = [];
  for (const token of tokens) {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else bytes.push(...new TextEncoder().encode(token));
  }
  return new TextDecoder().decode(new Uint8Array(bytes)).replaceAll(SPACE, " ").trim();
}

function spansOf(tokens) {
  const spans = [];
  tokens.forEach((token, index) => {
    const last = spans.at(-1);
    const isByte = token.startsWith("<0x");
    const joins = last !== undefined && !token.startsWith(SPACE) && token !== END &&
      (isByte || /^\p{M}/u.test(token) || !WITHOUT_SPACES.test(tokens[index - 1] + token));
    if (joins) last.push(index);
    else spans.push([index]);
  });
  return spans;
}

// Find each word in the text, in order, with or without a final mark that the line had not; a word
// that the text spells otherwise has no place.
function wordsOf(tokens, text) {
  let from = 0;
  return spansOf(tokens).map((span) => {
    const word = { span, text: surface(span.map((index) => tokens[index])), start: -1, end: -1 };
    word.isEnd = span.length === 1 && tokens[span[0]] === END;
    const found = [word.text, word.text.replace(/\p{P}$/u, "")]
      .find((each) => !word.isEnd && each && text.indexOf(each, from) >= 0);
    if (found) {
      word.start = text.indexOf(found, from);
      from = word.end = word.start + found.length;
    }
    return word;
  });
}

// Rows of weights of a line, also of one that was translated in parts.
function matrixOf(translation) {
  const blocks = translation.attention_blocks;
  if (translation.attention_weights || !blocks) return translation.attention_weights;
  const width = blocks.reduce((sum, block) => sum + (block[0]?.length ?? 0), 0);
  let left = 0;
  return blocks.flatMap((block) => {
    const size = block[0]?.length ?? 0;
    const rows = block.map((row) =>
      [...Array(left).fill(0), ...row, ...Array(width - left - size).fill(0)]);
    left += size;
    return rows;
  });
}

// Weights between words: sums over source tokens, means over target tokens.
function weightsOf(matrix, rows, columns) {
  if (!matrix) return null;
  return rows.map((row) => columns.map((column) => {
    let sum = 0;
    for (const t of row.span) for (const s of column.span) sum += matrix[t]?.[s] ?? 0;
    return sum / row.span.length;
  }));
}

function lineOf(text, translation) {
  const columns = wordsOf(translation.src_tokens, text);
  const rows = wordsOf(translation.tgt_tokens, translation.text);
  for (const row of rows) {
    row.probability = Math.exp(row.span.reduce((sum, t) => sum + translation.log_probs[t], 0));
  }
  const weights = weightsOf(matrixOf(translation), rows, columns);
  return { source: text, text: translation.text, score: translation.score, columns, rows, weights };
}

// Requests

const chosen = () => pair.selectedOptions[0].dataset;

async function ask(fields, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = element("token")?.value;
  if (token) headers.Authorization = `Bearer ${token}`;
  const { src: source, tgt: target } = chosen();
  const body = JSON.stringify({ source, target, ...fields });
  const answer = await fetch("v1/translate", { method: "POST", headers, body, signal });
  const found = await answer.json();
  if (answer.status === 401) throw new Error(token ? "The server has another token." : "Enter the token above.");
  if (!answer.ok) throw new Error(found.error);
  return found;
}

async function translate() {
  request.abort();
  request = new AbortController();
  const signal = request.signal, text = src.value;
  clearTimeout(waiting);
  describeInput(text);
  if (!text.trim()) {
    show([], []);
    say("");
    return;
  }
  waiting = setTimeout(() => say("Translating \u2026"), SLOW);
  tgt.classList.add("stale");
  const wanted = text.split("\n");
  try {
    const found = await ask({ text: wanted }, signal);
    show(wanted.map((line, n) => lineOf(line, found.translations[n])), found.notes);
  } catch (error) {
    if (signal.aborted) return;
    const lost = error instanceof TypeError;
    say(lost ? "The server does not answer." : error.message, true);
    element("notes").hidden = true;
  } finally {
    if (!signal.aborted) clearTimeout(waiting);
  }
}

// Examples, the address and the call, which follow the text.
function describeInput(text) {
  const { src: source, tgt: target, introduction, examples } = chosen();
  element("introduction").textContent = introduction;
  const buttons = JSON.parse(examples).map((sentence) => button(sentence, () => {
    src.value = sentence;
    src.focus();
    translate();
  }));
  element("examples").replaceChildren(...buttons);
  element("examples").hidden = text !== "" || !buttons.length;
  element("clear").hidden = text === "";
  const fields = new URLSearchParams({ source, target, ...(text.length <= LONG ? { text } : {}) });
  history.replaceState(null, "", text ? `#${fields}` : location.pathname);
  const body = JSON.stringify({ source, target, text: (text || "\u2026").split("\n") });
  const token = element("token") ? " \\\n  -H 'Authorization: Bearer TOKEN'" : "";
  element("call").textContent = `curl ${location.origin}${location.pathname}v1/translate${token} \\\n` +
    `  -H 'Content-Type: application/json' \\\n  -d '${body.replaceAll("'", "'\\''")}'`;
}

function button(text, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.dir = "auto";
  made.textContent = text;
  made.addEventListener("click", onClick);
  return made;
}

async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed without TLS
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    from.focus();
  }
  from.textContent = "Copied";
  setTimeout(() => { from.textContent = "Copy"; }, 1500);
}

function say(text, isError = false) {
  clearTimeout(waiting);
  message.classList.toggle("error", isError);
  message.textContent = text;
}

// The translation

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const ended = (text) => (/[.!?\u2026]$/.test(text) ? text : `${text}.`);

function show(found, notes) {
  tgt.classList.remove("stale");
  lines = found;
  pinned = null;
  offer([]);
  shownLine = -1;
  tgt.lang = chosen().tgt;
  tgt.replaceChildren(...lines.map(paragraph));
  mark(null);
  hint.hidden = !lines.some((line) => line.weights);
  element("notes").textContent = notes.flatMap((each, n) =>
    each.map((note) => (lines.length > 1 ? `Line ${n + 1}: ${note}` : capital(note)))).map(ended).join(" ");
  element("notes").hidden = !element("notes").textContent;
  say("");
  element("copy").hidden = !lines.some((line) => line.text);
  const first = lines.findIndex((line) => line.rows.length > 0);
  element("details").hidden = first < 0;
  if (first >= 0) explain(first);
}

function paragraph(line, n) {
  const p = document.createElement("p");
  p.dir = "auto";
  let from = 0;
  line.rows.forEach((row, index) => {
    if (row.start < 0) return;
    p.append(line.text.slice(from, row.start));
    const word = document.createElement("span");
    word.textContent = line.text.slice(row.start, row.end);
    word.className = "word";
    word.dataset.place = `${n} ${index}`;
    if (row.probability < UNCERTAIN) word.classList.add("uncertain");
    row.element = word;
    p.append(word);
    from = row.end;
  });
  p.append(line.text.slice(from));
  return p;
}

const percent = (value) => `${Number((100 * value).toPrecision(value < 0.1 ? 1 : 2))}%`;

// Say the figures of a word; null: none.
function describe(place) {
  if (!place) {
    say("");
    return;
  }
  const [n, index] = place, line = lines[n], row = line.rows[index], weights = line.weights?.[index];
  let text = `${row.text}: probability ${percent(row.probability)}`;
  if (weights) {
    const best = weights.indexOf(Math.max(...weights));
    text += `; attends to ${line.columns[best].text || END} ${percent(weights[best])}`;
  }
  say(text);
}

// Mark a word of the translation and the source words that it attends to; null: none.
function mark(place) {
  if (current) lines[current[0]]?.rows[current[1]]?.element?.classList.remove("active");
  for (const row of element("weights").querySelectorAll(".active")) row.classList.remove("active");
  current = place;
  const text = src.value;
  if (!place) {
    backdrop.replaceChildren(text + "\n");
    return;
  }
  const [n, index] = place, line = lines[n];
  line.rows[index].element?.classList.add("active");
  if (n !== shownLine) explain(n);
  element("weights").querySelector(`tr[data-row="${index}"]`)?.classList.add("active");
  const before = lines.slice(0, n).reduce((sum, each) => sum + each.source.length + 1, 0);
  const parts = [text.slice(0, before)];
  let from = 0;
  line.columns.forEach((column, s) => {
    const weight = line.weights?.[index][s] ?? 0;
    if (column.start < 0 || weight < FAINT) return;
    const marked = document.createElement("mark");
    marked.textContent = line.source.slice(column.start, column.end);
    marked.style.setProperty("--weight", weight.toFixed(3));
    parts.push(line.source.slice(from, column.start), marked);
    from = column.end;
  });
  backdrop.replaceChildren(...parts, line.source.slice(from),
    text.slice(before + line.source.length) + "\n");
}

// Heat map and alternatives of a line

function explain(n) {
  shownLine = n;
  const line = lines[n];
  element("map").hidden = !line.weights;
  if (line.weights) drawMap(line, MANY);
  element("mean").textContent = percent(Math.exp(line.score));
  element("n-best").replaceChildren();
  element("alternatives").hidden = true;
  details.abort();
  clearTimeout(searching);
  const n_best = Number(chosen().nBest);
  if (n_best > 1) searching = setTimeout(() => alternatives(line, n_best), DETAILS_DELAY);
}

function drawMap(line, most) {
  element("weights").replaceChildren(...table(line, most));
  element("all").hidden = Math.max(line.rows.length, line.columns.length) <= most;
  element("all").onclick = () => drawMap(line, Infinity);
  fade();
}

// Fade the edge at which a heat map goes on.
function fade() {
  const box = element("weights").parentElement;
  box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
}

function header(word, scope) {
  const cell = document.createElement("th");
  const label = document.createElement("span");
  cell.scope = scope;
  label.dir = "auto";
  label.textContent = word.isEnd ? END : word.text;
  if (word.isEnd) cell.className = "end";
  if (scope === "col" && WITHOUT_SPACES.test(word.text)) label.className = "upright";
  cell.append(label);
  return cell;
}

function table(line, most) {
  const head = document.createElement("thead"), body = document.createElement("tbody");
  const top = head.insertRow();
  const columns = line.columns.slice(0, most);
  top.append(document.createElement("td"), ...columns.map((word) => header(word, "col")));
  line.rows.slice(0, most).forEach((word, index) => {
    const row = body.insertRow();
    row.dataset.row = index;
    row.append(header(word, "row"));
    line.weights[index].slice(0, most).forEach((weight, s) => {
      const cell = row.insertCell();
      cell.style.setProperty("--weight", weight.toFixed(3));
      cell.title = `${word.text || END} attends to ${line.columns[s].text || END} ${percent(weight)}`;
    });
  });
  return [head, body];
}

async function alternatives(line, n_best) {
  details = new AbortController();
  const signal = details.signal;
  let found;
  try {
    found = await ask({ text: [line.source], n_best, attention: false }, signal);
  } catch {
    return; // the translation itself is shown
  }
  if (signal.aborted) return;
  const shown = (text) => text.replace(/\s+/g, ""); // a space more is no other translation
  const seen = new Set([shown(line.text)]), items = [];
  for (const each of found.translations[0].n_best) {
    if (seen.has(shown(each.text))) continue;
    seen.add(shown(each.text));
    const item = document.createElement("li"), bar = document.createElement("span");
    const text = button("", () => require(line, each.text)), mean = document.createElement("small");
    text.lang = chosen().tgt;
    text.append(...differences(each.text, line.text));
    bar.className = "bar";
    bar.style.setProperty("--weight", Math.exp(each.score).toFixed(3));
    mean.textContent = percent(Math.exp(each.score));
    item.append(text, bar, mean);
    items.push(item);
  }
  element("n-best").replaceChildren(...items);
  element("alternatives").hidden = items.length === 0;
}

// The words of a text; those that are not in another one, in its order, are marked.
function differences(text, other) {
  const [words, base] = [text, other].map((each) => each.split(/(\s+)/));
  const lengths = words.map(() => Array(base.length + 1).fill(0)).concat([Array(base.length + 1).fill(0)]);
  for (let i = words.length - 1; i >= 0; i--) {
    for (let j = base.length - 1; j >= 0; j--) {
      lengths[i][j] = words[i] === base[j] ? lengths[i + 1][j + 1] + 1 :
        Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const parts = [];
  for (let i = 0, j = 0; i < words.length;) {
    if (j < base.length && words[i] !== base[j] && lengths[i][j + 1] >= lengths[i + 1][j]) {
      j++;
      continue;
    }
    const isSame = j < base.length && words[i] === base[j];
    const part = document.createElement(isSame || !words[i].trim() ? "span" : "b");
    part.textContent = words[i++];
    if (isSame) j++;
    parts.push(part);
  }
  return parts;
}

// Translate a line again so that its translation begins with a text; "" translates it freely.
async function require(line, prefix) {
  const n = lines.indexOf(line);
  try {
    const found = await ask({ text: [line.source], prefix }, request.signal);
    if (lines[n] !== line) return;
    const all = [...lines];
    all[n] = lineOf(line.source, found.translations[0]);
    all[n].isRequired = prefix !== "";
    show(all, lines.map((_, index) => (index === n ? found.notes[0] : [])));
    explain(n);
    tgt.focus();
  } catch (error) {
    if (!request.signal.aborted) say(error.message, true);
  }
}

// Offer words in place of one: the first words of translations that begin with those before it.
async function replaceable(place) {
  others.abort();
  others = new AbortController();
  const signal = others.signal, [n, index] = place, line = lines[n], row = line.rows[index];
  const before = line.text.slice(0, row.start), offered = new Map();
  let found;
  try {
    found = await ask({
      text: [line.source], prefix: before, attention: false,
      beam_size: CHOICES, groups: CHOICES, n_best: CHOICES, diversity: 9,
    }, signal);
  } catch {
    return; // the word itself is described
  }
  if (signal.aborted) return;
  for (const { text, tokens, log_probs } of found.translations[0].n_best) {
    const next = wordsOf(tokens, text).find((word) => word.start >= before.length);
    if (!next || !text.startsWith(before) || next.text === row.text || offered.has(next.text)) continue;
    const probability = Math.exp(next.span.reduce((sum, t) => sum + log_probs[t], 0));
    const end = next.end + (text[next.end] === " " ? 1 : 0);
    if (probability >= RARE) offered.set(next.text, [probability, text.slice(0, end)]);
  }
  const words = [...offered].sort((one, other) => other[1][0] - one[1][0]);
  const buttons = words.map(([word, [probability, prefix]]) => {
    const made = button(`${word} `, () => require(line, prefix)), figure = document.createElement("small");
    figure.textContent = percent(probability);
    made.append(figure);
    return made;
  });
  if (line.isRequired) buttons.push(button("\u21ba", () => require(line, "")));
  if (line.isRequired) buttons.at(-1).title = "Translate freely again";
  const none = document.createElement("small");
  none.textContent = "No other word is likely here.";
  offer(words.length ? buttons : [none, ...buttons]);
}

// The row of offers keeps its place, so that the page does not move under the pointer.
function offer(offers) {
  others.abort();
  element("choices").replaceChildren(...offers);
  element("choices").hidden = !lines.length;
}

// Events

const placeOf = (node) => node.closest?.(".word[data-place]")?.dataset.place.split(" ").map(Number) ?? null;

function choose(place) {
  pinned = place;
  mark(place);
  describe(place);
  offer([]);
}

function step(by) {
  const places = lines.flatMap((line, n) => line.rows.flatMap((row, index) => (row.element ? [[n, index]] : [])));
  if (!places.length) return;
  const at = places.findIndex(([n, index]) => pinned && n === pinned[0] && index === pinned[1]);
  choose(places[at < 0 ? 0 : Math.min(Math.max(at + by, 0), places.length - 1)]);
}

src.addEventListener("input", () => {
  mark(null);
  clearTimeout(typing);
  typing = setTimeout(translate, DELAY);
});
tgt.addEventListener("pointerover", (event) => {
  const place = placeOf(event.target);
  if (event.pointerType !== "mouse" || !place) return;
  mark(place);
  describe(place);
});
tgt.addEventListener("pointerleave", (event) => {
  if (event.pointerType !== "mouse" || !current) return;
  mark(pinned);
  describe(pinned);
});
tgt.addEventListener("click", (event) => {
  const place = placeOf(event.target);
  choose(place);
  if (place) replaceable(place);
});
tgt.addEventListener("keydown", (event) => {
  const forward = getComputedStyle(pinned ? lines[pinned[0]].rows[pinned[1]].element : tgt).direction === "rtl" ? -1 : 1;
  if (event.key === "ArrowRight") step(forward);
  else if (event.key === "ArrowLeft") step(-forward);
  else if (event.key === "Enter" && pinned) replaceable(pinned);
  else if (event.key === "Escape") choose(null);
  else return;
  event.preventDefault();
});
function chooseLanguages() {
  src.lang = backdrop.lang = chosen().src;
  const { src: from, tgt: to } = chosen();
  const reverse = [...pair.options].find((each) => each.dataset.src === to && each.dataset.tgt === from);
  swap.hidden = !reverse;
  swap.onclick = () => {
    src.value = lines.map((line) => line.text).join("\n");
    pair.value = reverse.value;
    chooseLanguages();
  };
  translate();
}
pair.addEventListener("change", chooseLanguages);
element("access")?.addEventListener("submit", (event) => event.preventDefault());
element("token")?.addEventListener("change", translate);
element("clear").addEventListener("click", () => {
  src.value = "";
  src.focus();
  translate();
});
element("copy").addEventListener("click", (event) =>
  copy(lines.map((line) => line.text).join("\n"), event.target));
element("copy-call").addEventListener("click", (event) => copy(element("call").textContent, event.target));
element("weights").parentElement.addEventListener("scroll", fade);
addEventListener("resize", fade);

// The address after # names languages and text, so that a link has them.
function followAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const named = [...pair.options].find((each) =>
    each.dataset.src === fields.get("source") && each.dataset.tgt === fields.get("target"));
  if (named) pair.value = named.value;
  if (fields.has("text")) src.value = fields.get("text");
  chooseLanguages();
}
addEventListener("hashchange", followAddress);
followAddress();
