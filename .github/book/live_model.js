// The forward of nanogpt/model.py in plain JavaScript: one sequence, float32, a cache of its own.
// The contract is the same:
//
//   const logits = model.forward(tokens, cache, positions, mask);  // new rows behind cache.length
//   cache.commit(rows);                                            // keep these, in this order
//
// A matrix of N rows is one Float32Array, row after row.

function bytes(base64) {
  const text = atob(base64), found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found.buffer;
}

// packed, from live.py: int8 values, one float32 scale a row -> {name: float32 weights}
function unpack({ shapes, values, scales }) {
  const int8 = new Int8Array(bytes(values)), scale = new Float32Array(bytes(scales));
  const weights = {};
  let at = 0, row = 0;
  for (const [name, [rows, columns]] of Object.entries(shapes)) {
    const weight = weights[name] = new Float32Array(rows * columns);
    for (let i = 0; i < weight.length; i++)
      weight[i] = int8[at + i] * scale[row + Math.floor(i / columns)];
    at += weight.length;
    row += rows;
  }
  return weights;
}

// x (N, inputs), weight (outputs, inputs) -> (N, outputs)
function linear(x, weight, N) {
  const inputs = x.length / N, outputs = weight.length / inputs, y = new Float32Array(N * outputs);
  for (let o = 0; o < outputs; o++)
    for (let n = 0; n < N; n++) {
      let sum = 0;
      for (let i = 0, w = o * inputs, a = n * inputs; i < inputs; i++, w++, a++)
        sum += weight[w] * x[a];
      y[n * outputs + o] = sum;
    }
  return y;
}

// Layer norm of each row, without parameters: (N, C) -> (N, C)
function norm(x, N) {
  const C = x.length / N, y = new Float32Array(x.length);
  for (let at = 0; at < x.length; at += C) {
    let mean = 0, variance = 0;
    for (let i = at; i < at + C; i++) mean += x[i] / C;
    for (let i = at; i < at + C; i++) variance += (x[i] - mean) ** 2 / C;
    for (let i = at; i < at + C; i++) y[i] = (x[i] - mean) / Math.sqrt(variance + 1e-5);
  }
  return y;
}

function add(x, y) {
  for (let i = 0; i < x.length; i++) x[i] += y[i];
}

class Cache {
  constructor({ n_layer, n_embd, block_size }) {
    const room = (block_size + 256) * n_embd;  // a full context and a tree of 256 nodes behind it
    this.width = n_embd;
    this.keys = [...Array(n_layer)].map(() => new Float32Array(room));
    this.values = [...Array(n_layer)].map(() => new Float32Array(room));
    this.length = 0;  // committed rows; what lies behind them is scratch
  }

  // Keep the new rows with these indices (0 = first row behind `length`), in this order.
  commit(rows) {
    const C = this.width;
    for (const table of [...this.keys, ...this.values])
      // Rows only move to the front, and in a tree a path's rows ascend: none is lost.
      rows.forEach((row, place) => table.copyWithin(
        (this.length + place) * C, (this.length + row) * C, (this.length + row + 1) * C));
    this.length += rows.length;
  }
}

class GPT {
  constructor(packed) {
    this.config = packed.config;
    this.weights = unpack(packed);
  }

  newCache() { return new Cache(this.config); }

  // tokens: N ids. positions: N numbers; without, the next ones. mask: N rows over the LAST M rows
  // (the N new ones are the last of them), true = may attend; without, causal. -> N rows of logits
  forward(tokens, cache, positions = null, mask = null) {
    const { n_layer, n_head, n_embd: C, vocab_size: V } = this.config, N = tokens.length;
    positions = positions || tokens.map((_, n) => cache.length + n);
    mask = mask || tokens.map((_, n) => tokens.map((_, m) => m <= n));
    const x = new Float32Array(N * C), layer = name => this.weights[`${name}.weight`];
    tokens.forEach((token, n) =>
      x.set(layer("embed").subarray(token * C, (token + 1) * C), n * C));
    for (let i = 0; i < n_layer; i++) {
      const block = name => layer(`blocks.${i}.${name}`);
      const qkv = linear(norm(x, N), block("attention.qkv"), N);  // (N, 3 C)
      for (let n = 0; n < N; n++) {
        const at = n * 3 * C, place = (cache.length + n) * C;
        for (let head = 0; head < 2 * n_head; head++)  // q and k; v keeps its direction
          rotate(qkv, at + head * C / n_head, C / n_head, positions[n]);
        cache.keys[i].set(qkv.subarray(at + C, at + 2 * C), place);
        cache.values[i].set(qkv.subarray(at + 2 * C, at + 3 * C), place);
      }
      add(x, linear(attend(qkv, cache, i, mask, n_head), block("attention.out"), N));
      const up = linear(norm(x, N), block("up"), N);
      add(x, linear(up.map(value => Math.max(value, 0) ** 2), block("down"), N));
    }
    const logits = linear(norm(x, N), layer("lm_head"), N);
    return tokens.map((_, n) => logits.slice(n * V, (n + 1) * V));
  }
}

// RoPE: turn each pair (x[i], x[i + size/2]) of one head by its position's angle, in place.
function rotate(x, at, size, position) {
  for (let i = 0; i < size / 2; i++) {
    const angle = position * 10000 ** (-2 * i / size), cos = Math.cos(angle), sin = Math.sin(angle);
    const a = x[at + i], b = x[at + size / 2 + i];
    x[at + i] = a * cos - b * sin;
    x[at + size / 2 + i] = b * cos + a * sin;
  }
}

// qkv (N, 3 C), keys and values of layer i in the cache -> (N, C)
function attend(qkv, cache, i, mask, n_head) {
  const C = cache.width, N = mask.length, size = C / n_head, y = new Float32Array(N * C);
  const rows = cache.length + N, hidden = rows - mask[0].length;  // the mask covers the last rows
  const keys = cache.keys[i], values = cache.values[i], share = new Float64Array(rows);
  for (let n = 0; n < N; n++)
    for (let head = 0; head < C; head += size) {
      let total = 0;
      for (let row = 0; row < rows; row++) {
        let score = 0;
        for (let d = head; d < head + size; d++) score += qkv[n * 3 * C + d] * keys[row * C + d];
        const seen = row < hidden || mask[n][row - hidden];
        // No maximum is subtracted: normed inputs keep the scores far below exp's overflow.
        total += share[row] = seen ? Math.exp(score / Math.sqrt(size)) : 0;
      }
      for (let row = 0; row < rows; row++)
        for (let d = head; share[row] && d < head + size; d++)
          y[n * C + d] += share[row] / total * values[row * C + d];
    }
  return y;
}
