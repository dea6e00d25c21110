// One letter, and how its draft came. A way is written once, for two dice: one that draws, and one
// that follows every branch, so that the exact number stands beside the drawn ones.


// A result x < V is the draft x; V + x is x drawn by the target itself.
const follow = {  // -> the probability of each result, (2 V)
  is: (x, p) => onehot(x, [...p, ...p]),
  draw: (table, then = x => follow.is(table.length + x, table)) => {
    const law = Array(2 * table.length).fill(0);
    table.forEach((share, x) => share && then(x).forEach((p, y) => law[y] += share * p));
    return law;
  },
  flip: (chance, yes, no) => {
    const [kept, lost] = [yes(), no()];
    return kept.map((p, x) => chance * p + (1 - chance) * lost[x]);
  } };
const playing = dice => ({  // -> one result
  is: x => x,
  draw: (table, then = x => table.length + x) => then(dice.draw(table)),
  flip: (chance, yes, no) => dice.flip(chance) ? yes() : no() });

const passes = (p, q, x) => p[x] < q[x] ? p[x] / q[x] : 1;
const judge = (dice, p, q, x, lost = () => dice.draw(residual(p, q))) =>
  dice.flip(passes(p, q, x), () => dice.is(x, p), lost);
const surer = (q, x, y) => q[y] > q[x] ? y : x;

// (dice, p, q, told: does the judge know how the draft came?) -> a result
const WAYS = {
  "drawn from q, as the rule wants it": (dice, p, q) => dice.draw(q, x => judge(dice, p, q, x)),
  "drawn; after a rejection, p again (01)": (dice, p, q, told) => dice.draw(q, x =>
    judge(dice, p, q, x, () => dice.draw(told ? residual(p, q) : p))),
  "the top token, told q (02)": (dice, p, q, told) => judge(dice, p, told ? onehot(best(q), q) : q, best(q)),
  "never twice, told independent (02)": (dice, p, q, told) => dice.draw(q, x =>
    judge(dice, p, q, x, () => dice.draw(without(q, x), y =>
      judge(dice, residual(p, q), told ? without(q, x) : q, y)))),
  "the surer of two draws (03)": (dice, p, q, told) => {
    const law = told ? q.map((one, x) => one * sum(q.map((two, y) =>
      two * ((surer(q, x, y) === x) + (y !== x && surer(q, y, x) === x))))) : q;
    return dice.draw(q, x => dice.draw(q, y => judge(dice, p, law, surer(q, x, y))));
  },
  "the better of two walks (04)": (dice, p, q, told) => dice.draw(p, x =>
    told || x === best(q) ? dice.is(x, p) : dice.draw(p)),
  "the heap's two, told q (05)": (dice, p, q, told) => {
    const x = best(q), y = best(without(q, x)), known = told ? onehot(x, q) : q;
    return judge(dice, p, known, x, () => judge(dice, residual(p, known), told ? onehot(y, q) : without(q, x), y));
  },
  "hidden after the draw (05)": (dice, p, q, told) => dice.draw(q, x =>
    x === best(q) ? judge(dice, p, told ? onehot(x, q) : q, x) : dice.draw(p)),
};
const distance = (p, q) => sum(p.map((x, y) => Math.abs(x - q[y]))) / 2;  // total variation
const emitted = (law, p) => p.map((_, x) => law[x] + law[p.length + x]);

// ---- the page's part of it

let toy = { names: ["A", "B", "C"], p: [.5, .3, .2], q: [.6, .1, .3], slides: true }, drawn = null;

const wide = (name, share) => make(name, { style: `width: ${80 * share}%` });
const track = (parts, mark, note) => make("div.track", ...parts, wide("u", mark), make("small", note));

function letter() {
  const { names, p, q, slides } = toy, law = WAYS[ui.way.value](follow, p, q, ui.told.checked);
  const out = emitted(law, p), shown = drawn || law, V = p.length, most = Math.max(...p, ...q, ...out);
  const rows = slides ? range(V) : highest(p.map((x, y) => Math.max(x, out[y])), 9);
  const slide = (table, name, x) => {
    const moved = event => {  // the others keep their shares of the rest
      const wanted = +event.target.value, rest = (1 - wanted) / (1 - table[x]);
      table.forEach((share, y) => table[y] = y === x ? wanted : share * rest);
      renew();
    };
    return make("label", make("input", { type: "range", min: .02, max: .96, step: .02, value: table[x],
      "aria-label": `${name} of ${names[x]}`, onchange: moved }), ` ${name} ${digits(table[x])}`);
  };
  ui.drawn.replaceChildren(...rows.map(x => make("div.bar", make("b", names[x]),
    track([wide("i.accepted", shown[x] / most), wide("i.own", shown[V + x] / most), wide("i.draft", q[x] / most)], p[x] / most,
      `${digits(out[x])} for ${digits(p[x])}`), ...slides ? [make("div.row slides", slide(p, "p", x), slide(q, "q", x))] : [])));
  const worst = best(out.map((x, y) => Math.abs(x - p[y]))), off = distance(out, p);
  ui.exact.textContent = (drawn ? "Filled with 2,000 draws. In the long run: " : "") + (off < 1e-9 ? ui.way.selectedIndex && !ui.told.checked
    ? "Exactly p, but by luck: not once two letters have more p than q." : "Exactly p: nothing shows that there was a guess."
    : `Not p: '${names[worst]}' comes out with ${digits(out[worst])} for ${digits(p[worst])}. In all ${digits(off)} is in the wrong place.`);
}
const renew = () => { drawn = null; letter(); };

function draw2000() {
  const { p, q } = toy, dice = playing(new Dice(Math.random));
  drawn = Array(2 * p.length).fill(0);
  for (let i = 0; i < 2000; i++) drawn[WAYS[ui.way.value](dice, p, q, ui.told.checked)] += 1 / 2000;
  letter();
}

// The heap of chapter 05, popped by hand: a prefix is a list of ranks, slot after slot.
const SLOTS = [[.5, .4, .1], [.7, .2, .1], [.6, .3, .1]];
const mass = prefix => prefix.reduce((product, rank, slot) => product * SLOTS[slot][rank], 1);
const spelled = prefix => prefix.map(rank => "abc"[rank]).join("");
let queued = [[0]], popped = [];

function heap() {
  const price = +ui.price.value;
  let worth = 1;
  const pop = (prefix, i) => {
    const end = last(prefix), sibling = [...prefix.slice(0, -1), end + 1], child = [...prefix, 0];
    popped.push(prefix);
    queued.splice(i, 1, ...end < 2 ? [sibling] : [], ...prefix.length < 3 ? [child] : []);
    heap();
  };
  ui.waiting.replaceChildren(...queued.map((prefix, i) =>
    make("button", { onclick: () => pop(prefix, i) }, `${spelled(prefix)} ${digits(mass(prefix))}`)));
  ui.heaped.replaceChildren(...popped.map((prefix, n) => {
    const line = price * worth / (1 + price * n), cost = 1 + price * (n + 1), one = mass(prefix);
    worth += one;
    return make("div.bar", make("b", spelled(prefix)), track([wide(one > line ? "i.accepted" : "i.rejected", one)], line,
      `${worth.toFixed(2)} tokens / ${cost.toFixed(2)} = ${(worth / cost).toFixed(2)}`));
  }));
}

// The reader's chain among the methods: {method: [[price of a round in plain steps, tokens], ..]}
function drawMap(map) {
  const [draft, row, alpha] = [ui.draft, ui.row, ui.alpha].map(input => +input.value);
  const own = range(16).map(k => [1 + (k + 1) * (draft + row), (1 - alpha ** (k + 2)) / (1 - alpha)]);
  const speeds = own.map(([price, tokens]) => tokens / price), k = best(speeds), curves = { ...map, yours: own };
  const most = i => Math.max(...Object.values(curves).flat().map(point => point[i])), [wide, high] = [most(0), most(1)];
  const at = ([price, tokens]) => [30 + 270 * price / wide, 215 - 200 * tokens / high];
  const curve = (kind, name, points) => [make(`path.${kind}`, { d: `M${points.map(at).join(" L")}` }), label(...at(last(points)), "last", name)];
  ui.map.replaceChildren(...[1, 2, 3].flatMap(speed => curve("edge", `${speed}x`, [[0, 0], [Math.min(wide, high / speed), Math.min(wide * speed, high)]])),
    ...Object.entries(curves).flatMap(([name, points]) => curve(name === "yours" ? "edge own" : "edge accepted", name, points)),
    label(170, 235, "small", "price of a round in plain steps"), label(70, 12, "small", "tokens a round"));
  ui.mapped.textContent = `Your best chain has ${k + 1}: ${own[k][1].toFixed(2)} tokens for ${own[k][0].toFixed(2)} plain steps, `
    + `${speeds[k].toFixed(2)} times plain decoding.`;
}
