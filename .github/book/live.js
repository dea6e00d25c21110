// The live page: a text written in passes, and what one can try with it.

Object.assign(words, { target: "the large model", drafter: "the small model", token: "letter", p: "p", q: "q" });
const form = ui.form.elements, calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const numbered = text => [...text].map(letter => data.letters.indexOf(letter)).filter(token => token >= 0);
const spell = tokens => tokens.map(token => data.letters[token]).join("");
const part = asked.get("embed");
let target, drafter, run, rounds, tick, ticking, before, goal;  // rounds: {emitted}, the first is the prefill

function chosen() {
  const kind = form.rule.value, branching = kind === "chain" ? Array(+form.k.value).fill(1) : form.shape.value.split("-").map(Number);
  return { branching, rule: kind === "walk" ? walk : multiRound, temperature: +form.t.value, spoil: kind === "walk" ? 0 : +form.spoil.value };
}

const blank = tokens => !spell(tokens).trim();

function typed() {  // what the models can read of it; [] without a letter
  const plain = form.p.value.replace(/[\u2018\u2019\u201c\u201d"]/g, "'").replace(/[\u2013\u2014]/g, "-").replace(/\u2026/g, "...");
  const strange = [...new Set([...plain].filter(letter => !data.letters.includes(letter)))], tokens = numbered(plain);
  ui.note.textContent = blank(tokens) ? "Type at least one letter."
    : strange.length ? `The models know letters, spaces and ! ' , - . : ; ? only; left out: ${strange.join(" ")}` : "";
  return blank(tokens) ? [] : tokens;
}

// ---- the race

const SIZE = 60;  // letters at a time
const letters = () => sum(rounds.map(({ emitted }) => emitted.length));
const write = passes => { while (run && letters() < goal && rounds.length < passes) rounds.push(run.round(chosen())); };

function begin(quick, from = 1) {  // quick: written at once, as when a slider moves; from: a tick
  if (target) {  // else the race that every visitor sees, once more
    const text = typed();
    if (!text.length) return;
    run = new Speculation(target, drafter, text, chosen().temperature, seeded(Math.abs(form.seed.value)));
    before = spell(text.slice(-300));
    rounds = [{ emitted: [run.root] }];
  }
  [tick, goal] = [from, SIZE];
  clearInterval(ticking);
  if (quick || calm) return finish();
  start();
}

function start() {
  ticking = setInterval(() => {
    tick += 1;
    write(tick);
    if (tick >= letters()) finish();
    else race();
  }, 140);
}

function finish() {
  write(Infinity);
  tick = letters();
  ticking = clearInterval(ticking);
  race();
  if (!run) return;
  tables();
  if (part === "pass") { look(1); reads(5); }
}

function race() {
  const done = rounds.slice(0, tick), wrote = sum(done.map(({ emitted }) => emitted.length)), all = rounds.flatMap(one => one.emitted);
  const head = make("span.hint", before);
  ui.alone.replaceChildren(head, spell(all.slice(0, tick)));
  ui.story.replaceChildren(head.cloneNode(true), ...done.map(({ emitted }, i) => {
    const touch = event => { event.preventDefault(); look(i); };
    return make("a", { href: "#pass", onclick: touch }, spell(emitted.slice(0, -1)), make("b", spell(emitted.slice(-1))));
  }));
  ui.pause.textContent = ticking ? "pause" : "go on";
  ui.ticks.textContent = several(Math.min(tick, all.length), "pass");
  ui.spent.textContent = several(done.length, "pass") + (wrote < goal ? "" : ", finished");
  const greedy = !+form.t.value, guesses = wrote - done.length;
  ui.sum.textContent = tick < all.length || wrote < goal ? "" : `${guesses} of ${wrote} letters are the small model's guesses, yet `
    + `${greedy ? "the text is, letter for letter, the one that the large model writes alone" : "the large model alone would draw this text exactly as often"}. `
    + `It took ${done.length} passes of the large model instead of ${wrote}.`;
}

function tables() {  // what was tried, the newest first
  const { branching, temperature, spoil } = chosen(), wrote = letters();
  const cells = [`${form.rule.value} ${branching.join("-")}`, temperature, spoil, wrote, rounds.length, (wrote / rounds.length).toFixed(2), run.drafts];
  const row = (values, cell) => make("tr", ...values.map(value => make(cell, value)));
  const old = [...ui.runs.querySelectorAll("tr")].slice(1, 7);
  ui.runs.replaceChildren(row(["guesses", "temperature", "spoiled", "letters", "passes", "letters a pass", "the small one's passes"], "th"),
    row(cells, "td"), ...old.filter(one => one.textContent !== cells.join("")));
  toy = open();
  renew();
  if (part) return;
  try { history.replaceState(null, "", `#${new URLSearchParams(new FormData(ui.form))}`); } catch (e) { /* a sandbox */ }
}

// p and q at temperature 1 where the text is most open: there a wrong rule is seen best.
function open() {
  const text = run.text.slice(-200), [p, q] = [target, drafter].map(model => model.forward(text, model.newCache()).map(row => sampler(row, 1)));
  const place = best(p.map(row => -Math.max(...row)));
  ui.where.textContent = `After '${spell(text.slice(0, place + 1)).slice(-20)}'. `;
  return { names: data.letters.map(visible), p: p[place], q: q[place] };
}

function measure() {  // in the reader's own browser
  finish();
  const cost = (model, cache, n) => {
    const tree = { tokens: Array(n).fill(1), parents: range(n).map(row => row - 1) };
    return Math.min(...range(4).map(() => {  // the others were disturbed
      const start = performance.now();
      range(8).forEach(() => read(model, cache, tree));  // some browsers count whole milliseconds
      return (performance.now() - start) / 8;
    }));
  };
  const rows = last(rounds).tokens.length, [one, many, small] = [
    cost(target, run.cache, 1), cost(target, run.cache, rows), cost(drafter, run.small, 1)];
  const price = (many + chosen().branching.length * small) / one, rate = letters() / rounds.length;
  ui.note.textContent = `1 row: ${one.toFixed(1)} ms, ${rows} rows: ${many.toFixed(1)} ms, the small model: ${small.toFixed(2)} ms. So a round costs `
    + `${price.toFixed(1)} plain passes and writes ${rate.toFixed(1)} letters. On this device it would ${rate < price ? "lose" : "win"}.`;
}

// ---- a pass, step by step

function look(i) {
  const round = rounds[i];
  if (!round.tokens) return;
  ui.pass.hidden = false;
  show({ ...round, letters: data.letters, context: spell(round.text.slice(-30)) });
  ui.story.querySelectorAll("a").forEach((piece, n) => piece.classList.toggle("now", n === i));
  if (part) return;
  ui.pass.scrollIntoView({ behavior: "smooth" });
  ui.on.focus({ preventScroll: true });  // for the keyboard
}

// What a node's row reads; with a causal mask also the rows above it, whatever branch they are on.
function reads(row) {
  const cache = target.newCache(), text = trace.text.slice(-200), leaky = ui.causal.checked, own = ancestors(trace.parents);
  const mask = own.map((seen, i) => seen.map((one, j) => leaky ? j <= i : one));
  target.forward(text, cache);
  cache.commit(range(text.length));
  const [right, p] = [own, mask].map(rows => sampler(read(target, cache, trace, rows)[row], 1));
  const other = mask[row].some((seen, i) => seen && !own[row][i]);
  ui.reads.textContent = `Row ${row} reads '${trace.context.slice(-9)}${spell(trace.tokens.filter((_, i) => mask[row][i]))}' and would go on with `
    + `${listed(highest(p, 3).map(token => `'${visible(data.letters[token])}' ${digits(p[token])}`))}.`
    + (other ? ` ${digits(distance(right, p))} of that is wrong: other branches leak in.` : "");
  trace.sees = mask.map(seen => range(seen.length).filter(i => seen[i]));
  const verify = trace.frames.findIndex(f => f.verb === "verify");
  trace.frames[verify].focus = [row];
  go(verify);
}
let touched = 0;
ui.another.onclick = () => reads(touched = (touched + 1) % trace.tokens.length);
ui.tree.onclick = event => {
  const node = event.target.closest("[data-row]");
  if (node?.dataset.row) reads(touched = +node.dataset.row);
};
ui.causal.onchange = () => reads(touched);

// ---- draft against the machine

let game, rival, tiles;
function duel() {
  const text = typed();
  if (!text.length) return;
  [game, rival] = [1, 1].map(seed => new Speculation(target, drafter, text, 0, seeded(seed)));
  tiles = [];
  ui.game.replaceChildren(spell([...game.text, game.root]).slice(-70));
  ui.score.textContent = "";
}
ui.guessing.onsubmit = event => {
  event.preventDefault();
  const guesses = numbered(ui.guess.value.replace(/\//g, "\n"));
  if (tiles.length === 10) return duel();
  if (!guesses.length) return;
  const { emitted } = game.round({ guesses, rule: multiRound, temperature: 0 });
  tiles.push("\u{1f7e6}".repeat(emitted.length - 1) + "\u{1f7e7}");
  ui.game.append(make("span.p", spell(emitted)));
  ui.guess.value = "";
  ui.score.textContent = `${tiles.join(" ")} ${emitted.length > 1 ? "kept, and" : "None kept;"} the large model added '${visible(spell(emitted.slice(-1)))}'.`;
  if (tiles.length < 10) return;
  const wrote = tiles.join("").length / 2;
  let passes = 0, machine = 0;
  for (; machine < wrote; passes++) machine += rival.round({ branching: [1, 1, 1, 1], rule: multiRound, temperature: 0 }).emitted.length;
  const line = `${tiles.join(" ")} I drafted ${(wrote / 10).toFixed(1)} letters a pass, a 57K model ${(machine / passes).toFixed(1)}. ${location.protocol === "file:" ? "" : location}`;
  const copy = make("button", "copy");
  copies(copy, () => line);
  ui.score.replaceChildren(line, " ", copy);
};

// ---- what one can press

function copies(button, line) {
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(line());
      button.textContent = "copied";
    } catch (e) { prompt("Copy this line", line()); }  // no way to the clipboard
  };
}
for (const name of Object.keys(WAYS)) ui.way.append(make("option", name));
ui.way.onchange = ui.told.onchange = renew;
ui.draws.onclick = draw2000;
ui.again.onclick = () => begin();
ui.pause.onclick = () => {
  if (ticking) {
    ticking = clearInterval(ticking);
    return race();
  }
  if (run && tick >= letters()) goal += SIZE;
  start();
};
ui.measure.onclick = measure;
copies(ui.link, () => location.href);
ui.form.onsubmit = event => {
  event.preventDefault();
  duel();
  begin();
  ui.story.previousElementSibling.scrollIntoView({ block: "nearest", behavior: "smooth" });  // on a phone it is far above
};
const said = () => {
  for (const output of document.querySelectorAll("output")) output.textContent = output.previousElementSibling.value;
  const kind = form.rule.value;
  ui.long.hidden = kind !== "chain";
  ui.wide.hidden = kind === "chain";
  ui.spoiling.hidden = kind === "walk";
  heap();
  drawMap(data.map || {});
};
document.oninput = event => {
  said();
  if (run && event.target.form === ui.form && event.target.name !== "p") begin(true);
};
for (const [name, value] of asked) {
  const field = form.namedItem(name), usual = field?.value;
  if (field) field.value = value;
  if (field?.selectedIndex === -1 || name === "p" && blank(numbered(value))) field.value = usual;  // such a choice is not there
}
if (part) {
  ui[part].classList.add("asked");
  ui[part].hidden = false;
}
said();
renew();
const known = !location.hash;  // then the race need not wait for the models
if (known) {
  rounds = data.race.map(emitted => ({ emitted }));
  before = data.prompt;
  ui.race.inert = false;
  begin();
}

function ready() {  // the models are there
  target = new GPT(data.target);
  drafter = new GPT(data.drafter);
  for (const section of document.querySelectorAll("section")) section.inert = false;
  begin(part || known && !ticking, known ? tick : 1);
  duel();
}
