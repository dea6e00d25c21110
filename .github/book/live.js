// The live page: a text written in passes, and what one can try with it.

Object.assign(words, { target: "the large model", drafter: "the small model", token: "letter" });
const form = ui.form.elements, calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const spell = tokens => tokens.map(token => data.letters[token]).join("");
const RULES = { chain: multiRound, walk, multi: multiRound };
const part = asked.get("embed");
let target, drafter, run, rounds, tick, ticking, before;  // rounds: {emitted}, the first is the prefill

function chosen() {
  const kind = form.rule.value, branching = kind === "chain" ? Array(+form.k.value).fill(1) : form.shape.value.split("-").map(Number);
  return { branching, rule: RULES[kind], temperature: +form.t.value, spoil: kind === "walk" ? 0 : +form.spoil.value };
}

function typed() {  // what the models can read of it
  const plain = form.p.value.replace(/[\u2018\u2019\u201c\u201d"]/g, "'").replace(/[\u2013\u2014]/g, "-").replace(/\u2026/g, "...");
  const strange = [...new Set([...plain].filter(letter => !data.letters.includes(letter)))];
  ui.note.textContent = strange.length ? `The models know letters, spaces and ! ' , - . : ; ? only; left out: ${strange.join(" ")}` : "";
  return [...plain].map(letter => data.letters.indexOf(letter)).filter(token => token >= 0);
}

// ---- the race

const SIZE = 60;
const letters = () => sum(rounds.map(({ emitted }) => emitted.length));
const more = () => rounds.push(run.round(chosen()));

function begin(quick, from = 1) {  // quick: written at once, as when a slider moves; from: a tick
  const text = typed();
  if (!text.length) return ui.note.textContent = "Type at least one letter.";
  run = new Speculation(target, drafter, text, chosen().temperature, seeded(+form.seed.value));
  before = spell(text);
  rounds = [{ emitted: [run.root] }];
  tick = from;
  clearInterval(ticking);
  if (quick || calm) return finish();
  start();
}

function start() {
  ticking = setInterval(() => {
    tick += 1;
    while (run && letters() < SIZE && rounds.length < tick) more();
    if (tick >= letters()) finish();
    else race();
  }, 140);
  ui.pause.textContent = "pause";
  race();
}

function finish() {
  while (run && letters() < SIZE) more();
  tick = letters();
  ticking = clearInterval(ticking);
  ui.pause.textContent = "go on";
  race();
  if (run) tables();
  if (run && part === "pass") { look(1); reads(5); }
}

function race() {
  const done = rounds.slice(0, tick), wrote = sum(done.map(({ emitted }) => emitted.length)), all = rounds.flatMap(one => one.emitted);
  const head = make("span.hint", before);
  ui.alone.replaceChildren(head, spell(all.slice(0, tick)));
  ui.story.replaceChildren(head.cloneNode(true), ...done.map(({ emitted }, i) => {
    const piece = make("a", { href: "#pass" }, spell(emitted.slice(0, -1)), make("b", spell(emitted.slice(-1))));
    piece.onclick = event => { event.preventDefault(); look(i); };
    return piece;
  }));
  ui.ticks.textContent = several(Math.min(tick, all.length), "pass");
  ui.spent.textContent = several(done.length, "pass");
  const greedy = !+form.t.value, guesses = wrote - done.length;
  ui.sum.replaceChildren(...tick < all.length || wrote < SIZE ? ["Tinted: a pass. ", make("u", "Underlined"), ": the large model's own letter."] : [
    make("b", `${guesses} of ${wrote} letters are the small model's, yet the text ${greedy ? "is, letter for letter, the one that"
      : "has exactly the distribution that"} the large model ${greedy ? "writes" : "has"} alone: ${done.length} passes instead of ${wrote}.`)]);
}

function tables() {  // what was tried, the newest first
  const { branching, temperature, spoil } = chosen(), wrote = letters();
  const cells = [`${form.rule.value} ${branching.join("-")}`, temperature, spoil, wrote, rounds.length, (wrote / rounds.length).toFixed(2), run.drafts];
  const row = values => make("tr", ...values.map(value => make("td", value)));
  const old = [...ui.runs.querySelectorAll("tr")].slice(1, 7);
  ui.runs.replaceChildren(row(["guesses", "temperature", "spoiled", "letters", "passes", "letters a pass", "the small one's passes"]),
    row(cells), ...old.filter(one => one.textContent !== row(cells).textContent));
  toy = open();
  renew();
  try { history.replaceState(null, "", `#${new URLSearchParams(new FormData(ui.form))}`); } catch (e) { /* a sandbox */ }
}

// p and q at temperature 1 where the text is most open: there a wrong rule is seen best.
function open() {
  const [p, q] = [target, drafter].map(model => model.forward(run.text, model.newCache()).map(row => sampler(row, 1)));
  const place = best(p.map(row => -Math.max(...row)));
  ui.where.textContent = `After '${spell(run.text.slice(0, place + 1)).slice(-20)}'. `;
  return { names: data.letters.map(visible), p: p[place], q: q[place] };
}

function measure() {  // in the reader's own browser
  const cost = (model, cache, n) => {
    const tree = { tokens: Array(n).fill(1), parents: range(n).map(row => row - 1) };
    return Math.min(...range(20).map(() => {  // the others were disturbed
      const start = performance.now();
      read(model, cache, tree);
      return performance.now() - start;
    }));
  };
  const rows = last(rounds).tokens.length, costs = [cost(target, run.cache, 1), cost(target, run.cache, rows), cost(drafter, run.small, 1)];
  const [one, many, small] = costs, price = (many + chosen().branching.length * small) / one, rate = letters() / rounds.length;
  ui.cost.textContent = `1 row: ${one.toFixed(1)} ms, ${rows} rows: ${many.toFixed(1)} ms, the small model: ${small.toFixed(2)} ms. So a round costs `
    + `${price.toFixed(1)} plain passes and writes ${rate.toFixed(1)} letters. On this device it would ${rate < price ? "lose" : "win"}.`;
}

// ---- a pass, step by step

function look(i) {
  if (!rounds[i].tokens) return;
  const round = rounds[i];
  ui.round.hidden = false;
  show({ ...round, letters: data.letters, context: spell(round.text.slice(-30)) });
  [...ui.story.querySelectorAll("a")].forEach((piece, n) => piece.classList.toggle("now", n === i));
  if (!part) ui.pass.scrollIntoView({ behavior: "smooth" });
}

// What a node's row reads; with a causal mask also the rows above it, whatever branch they are on.
function reads(row) {
  const cache = target.newCache(), mask = ancestors(trace.parents), causal = mask.map((_, i) => mask.map((_, j) => j <= i));
  target.forward(trace.text.slice(-200), cache);
  cache.commit(range(Math.min(trace.text.length, 200)));
  const [right, wrong] = [mask, causal].map(rows => sampler(read(target, cache, trace, rows)[row], 1));
  const seen = (ui.causal.checked ? causal : mask)[row], p = ui.causal.checked ? wrong : right;
  ui.reads.textContent = `Row ${row} reads '${trace.context.slice(-9)}${spell(trace.tokens.filter((_, i) => seen[i]))}' and would go on with `
    + `${listed(highest(p, 3).map(token => `'${visible(data.letters[token])}' ${digits(p[token])}`))}.`
    + (ui.causal.checked ? ` ${digits(distance(right, wrong))} of that is wrong: other branches leak in.` : "");
  trace.sees = (ui.causal.checked ? causal : mask).map(seen => range(seen.length).filter(i => seen[i]));
  const verify = trace.frames.findIndex(f => f.verb === "verify");
  trace.frames[verify].focus = [row];
  go(verify);
}
let touched = 0;
ui.tree.onclick = event => {
  const node = event.target.closest("[data-row]");
  if (node?.dataset.row) reads(touched = +node.dataset.row);
};
ui.causal.onchange = () => reads(touched);

// ---- draft against the machine

let game, tiles;
function duel() {
  game = new Speculation(target, drafter, typed(), 0, seeded(1));
  tiles = [];
  ui.game.replaceChildren(spell([...game.text, game.root]).slice(-70));
  ui.score.textContent = "";
}
ui.guessing.onsubmit = event => {
  event.preventDefault();
  const guesses = [...ui.guess.value].map(letter => data.letters.indexOf(letter)).filter(token => token >= 0);
  if (tiles.length === 10 || !guesses.length) return duel();
  const { emitted } = game.round({ guesses, rule: multiRound, temperature: 0 });
  tiles.push("\u{1f7e6}".repeat(emitted.length - 1) + "\u{1f7e7}");
  ui.game.append(make("span.p", spell(emitted)));
  ui.guess.value = "";
  ui.score.textContent = `${tiles.join(" ")} ${spell(emitted.slice(0, -1)) ? "kept, and" : "None kept;"} the large model added '${visible(spell(emitted.slice(-1)))}'.`;
  if (tiles.length < 10) return;
  const wrote = tiles.join("").length / 2, rival = new Speculation(target, drafter, typed(), 0, seeded(1));
  let passes = 0, machine = 0;
  for (; machine < wrote; passes++) machine += rival.round({ branching: [1, 1, 1, 1], rule: multiRound, temperature: 0 }).emitted.length;
  const line = `${tiles.join(" ")} I drafted ${(wrote / 10).toFixed(1)} letters a pass, a 57K model ${(machine / passes).toFixed(1)}. ${location}`;
  const copy = make("button", "copy");
  copy.onclick = () => navigator.clipboard?.writeText(line);
  ui.score.replaceChildren(line, " ", copy);
};

// ---- what one can press

for (const name of Object.keys(WAYS)) ui.way.append(make("option", name));
ui.way.onchange = ui.told.onchange = renew;
ui.draws.onclick = draw2000;
ui.again.onclick = () => begin();
ui.pause.onclick = () => {
  if (ticking) { ticking = clearInterval(ticking); ui.pause.textContent = "go on"; }
  else start();
};
ui.measure.onclick = measure;
ui.link.onclick = () => navigator.clipboard?.writeText(location).then(() => ui.link.textContent = "copied");
ui.form.onsubmit = event => { event.preventDefault(); begin(); duel(); };
const said = () => {
  for (const output of document.querySelectorAll("output")) output.textContent = output.parentNode.querySelector("input").value;
  ui.long.hidden = form.rule.value !== "chain";
  ui.wide.hidden = form.rule.value === "chain";
  ui.spoiling.hidden = form.rule.value === "walk";
  heap();
  drawMap(data.map || {});
};
document.oninput = event => {
  said();
  if (run && event.target.form === ui.form && event.target.name !== "p") begin(true);
};
ui.on.onclick = () => go(now + 1);
ui.back.onclick = () => go(now - 1);
ui.play.onclick = play;
onresize = () => trace && go(now);
for (const [name, value] of asked) if (form[name]) form[name].value = value;
if (part) {
  root.classList.add("embed");
  ui[part].classList.add("asked");
  ui[part].hidden = false;
}
said();
renew();
const known = !asked.size;  // then the race need not wait for the models
if (known) {
  rounds = data.race.map(emitted => ({ emitted }));
  before = data.prompt;
  tick = 1;
  if (calm) finish();
  else start();
}

function ready() {  // the models are there
  target = new GPT(data.target);
  drafter = new GPT(data.drafter);
  begin(part || known && !ticking, known ? tick : 1);
  duel();
}
