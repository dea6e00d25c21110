// The forward of nanogpt/model.py in plain JavaScript, with its contract: one sequence, float32.
// A matrix of N rows is one Float32Array, row after row.

const bytes = base64 => Uint8Array.from(atob(base64), letter => letter.charCodeAt(0)).buffer;

// packed, from live.py: rows, columns, int8 values, a float32 scale for each row
function unpack([rows, columns, values, scales]) {
  const int8 = new Int8Array(bytes(values)), scale = new Float32Array(bytes(scales));
  return Float32Array.from(int8, (value, i) => value * scale[Math.floor(i / columns)]);
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

class Cache {
  constructor({ n_layer, n_embd, block_size }) {
    const tables = () => range(n_layer).map(() => new Float32Array((block_size + 256) * n_embd));  // a tree behind a full context
    Object.assign(this, { width: n_embd, keys: tables(), values: tables(), length: 0 });
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
  constructor({ config, weights }) {
    this.config = config;
    this.weights = Object.fromEntries(Object.entries(weights).map(([name, packed]) => [name, unpack(packed)]));
  }

  newCache() { return new Cache(this.config); }

  // tokens: N ids, new rows behind cache.length. positions: N numbers; without, the next ones. mask: N
  // rows over the N new rows, true = may attend; without, causal. -> N rows of logits
  forward(tokens, cache, positions = tokens.map((_, n) => cache.length + n), mask = tokens.map((_, n) => tokens.map((_, m) => m <= n))) {
    const { n_layer, n_head, n_embd: C, vocab_size: V } = this.config, N = tokens.length;
    const x = new Float32Array(N * C), layer = name => this.weights[`${name}.weight`];
    const add = y => y.forEach((value, i) => x[i] += value);
    tokens.forEach((token, n) => x.set(layer("embed").subarray(token * C, (token + 1) * C), n * C));
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
      add(linear(attend(qkv, cache, i, mask, n_head), block("attention.out"), N));
      const up = linear(norm(x, N), block("up"), N);
      add(linear(up.map(value => Math.max(value, 0) ** 2), block("down"), N));
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
  const keys = cache.keys[i], values = cache.values[i], rows = cache.length + N, share = new Float64Array(rows);
  for (let n = 0; n < N; n++)
    for (let head = 0; head < C; head += size) {
      let total = 0;
      for (let row = 0; row < rows; row++) {
        let score = 0;
        for (let d = head; d < head + size; d++) score += qkv[n * 3 * C + d] * keys[row * C + d];
        const seen = row < cache.length || mask[n][row - cache.length];
        // No maximum is subtracted: normed inputs keep the scores far below exp's overflow.
        total += share[row] = seen ? Math.exp(score / Math.sqrt(size)) : 0;
      }
      for (let row = 0; row < rows; row++)
        for (let d = head; share[row] && d < head + size; d++)
          y[n * C + d] += share[row] / total * values[row * C + d];
    }
  return y;
}
