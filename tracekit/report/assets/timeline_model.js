// What the timeline shows: tracks of rows of disjoint spans, and which chain each span belongs to.
((T) => {
  const LINKS = ["dispatch", "launch", "stream", "submit", "wait"];
  const LANE_NAMES = { dispatch: "dispatch", stream: "stream", runtime: "runtime", hardware: "hardware", gaps: "gaps" };

  class TimelineModel {
    constructor(description, columns) {
      Object.assign(this, { window: description.window_ns, texts: description.texts });
      Object.assign(this, { kinds: description.kinds, causes: description.causes, steps: description.steps });
      const of = (name) => columns[name] || new Float64Array(0);
      this.start = of("spans.start");
      this.length = of("spans.length");
      this.track = T.indices(of("spans.track"));
      this.kind = T.indices(of("spans.kind"));
      this.name = T.indices(of("spans.name"));
      this.count = of("spans.count");
      this.busy = of("spans.busy");
      this.execution = of("spans.execution");
      this.bytes = of("spans.bytes");
      this.shape = T.indices(of("spans.shape"));
      this.nesting = T.indices(of("spans.depth"));
      this.depth = this.nesting.slice();
      this.python = this.kinds.indexOf("python");
      this.spans = this.start.length;
      this.readChains(of);
      this.readGaps(of);
      this.tracks = description.tracks.map((track, index) => ({ ...track, index, laneName: LANE_NAMES[track.lane], rows: [] }));
      const first = new Map();
      for (const t of this.tracks) { const key = `${t.side} ${t.session}`; if (!first.has(key)) first.set(key, t.index); }
      this.order = [...this.tracks].sort((a, b) => first.get(`${a.side} ${a.session}`) - first.get(`${b.side} ${b.session}`) || a.index - b.index);
      this.hasPython = this.kind.includes(this.python);
      this.layRows(this.hasPython && this.kind.includes(this.kinds.indexOf("op")));
    }

    readChains(of) {
      this.chain = Object.fromEntries(LINKS.map((link) => [link, T.indices(of(`chains.${link}`))]));
      Object.assign(this.chain, {
        name: T.indices(of("chains.name")), core: of("chains.core"), missing: T.indices(of("chains.missing")),
        dispatchAt: of("chains.dispatch_at"), submitAt: of("chains.submit_at"), from: of("chains.start"), to: of("chains.end"),
      });
      this.chains = this.chain.name.length;
      this.hardwareChain = T.indices(of("hardware.chain"));
      this.hardwareSpan = T.indices(of("hardware.span"));
      this.chainsOf = this.index([...LINKS.map((l) => [this.chain[l], null]), [this.hardwareSpan, this.hardwareChain]]);
      this.hardwareOf = this.group(this.hardwareChain, this.hardwareSpan, this.chains);
      this.launchedBy = this.index([[this.chain.dispatch, null]]);
    }

    readGaps(of) {
      this.gap = {
        track: T.indices(of("gaps.track")), start: of("gaps.start"), length: of("gaps.length"), late: T.indices(of("gaps.name")),
        parts: this.causes.map((cause) => of(`gaps.${cause}_ns`)),
      };
      this.gaps = this.gap.start.length;
      this.gap.cause = Int32Array.from({ length: this.gaps }, (_, i) => {
        let best = this.causes.length - 1;
        this.gap.parts.forEach((part, c) => { if (part[i] > (this.gap.parts[best][i] || 0)) best = c; });
        return best;
      });
    }

    // Lists of values by key, as one array and its offsets.
    group(keys, values, size) {
      const offsets = new Int32Array(size + 1);
      for (const key of keys) if (key >= 0) offsets[key + 1]++;
      for (let i = 0; i < size; i++) offsets[i + 1] += offsets[i];
      const items = new Int32Array(offsets[size]);
      const next = offsets.slice(0, size);
      keys.forEach((key, i) => { if (key >= 0) items[next[key]++] = values[i]; });
      return (key) => items.subarray(offsets[key], offsets[key + 1]);
    }

    // Chains by span, from pairs of (spans, chains); chains null means the position itself.
    index(pairs) {
      const total = pairs.reduce((sum, [spans]) => sum + spans.length, 0);
      const keys = new Int32Array(total), values = new Int32Array(total);
      let at = 0;
      for (const [spans, chains] of pairs) {
        keys.set(spans, at);
        for (let i = 0; i < spans.length; i++) values[at + i] = chains ? chains[i] : i;
        at += spans.length;
      }
      return this.group(keys, values, this.spans);
    }

    // Rows of every track; Python frames can be left out, what they enclose then moves up.
    layRows(withoutPython) {
      this.withoutPython = withoutPython;
      this.depth.set(this.nesting);
      const firsts = new Int32Array(this.tracks.length + 1).fill(this.spans);
      for (let i = this.spans - 1; i >= 0; i--) firsts[this.track[i]] = i;
      for (let t = this.tracks.length - 1; t >= 0; t--) firsts[t] = Math.min(firsts[t], firsts[t + 1]);
      for (const track of this.tracks) {
        if (track.lane === "gaps") {
          track.rows = [Int32Array.from({ length: this.gaps }, (_, i) => i).filter((i) => this.gap.track[i] === track.index)];
          continue;
        }
        track.first = firsts[track.index];
        track.last = firsts[track.index + 1];
        const shown = [];
        for (let i = track.first; i < track.last; i++) if (!withoutPython || this.kind[i] !== this.python) shown.push(i);
        if (shown.length < track.last - track.first || !this.isNested(shown)) this.firstFit(shown);
        const rows = [];
        for (const i of shown) (rows[this.depth[i]] ||= []).push(i);
        track.rows = Array.from(rows, (row) => Int32Array.from(row || []));
      }
    }

    // Whether no two spans of the same depth overlap.
    isNested(spans) {
      const until = [];
      for (const i of spans) {
        const depth = this.depth[i];
        if (this.start[i] < (until[depth] ?? -Infinity)) return false;
        until[depth] = this.start[i] + this.length[i];
      }
      return true;
    }

    // Spans of asynchronous tracks overlap without nesting: each goes to the first free row.
    firstFit(spans) {
      const until = [];
      for (const i of spans) {
        let row = 0;
        while (row < until.length && until[row] > this.start[i]) row++;
        until[row] = this.start[i] + Math.max(1, this.length[i]);
        this.depth[i] = row;
      }
    }

    end(span) { return this.start[span] + this.length[span]; }
    text(index) { return index < 0 ? "" : this.texts[index]; }
    nameOf(span) { return this.text(this.name[span]); }
    hops(chain) {
      const hops = LINKS.filter((l) => l !== "wait").map((link) => [link, this.chain[link][chain]]).filter(([, span]) => span >= 0);
      const seen = new Set();
      const unique = hops.filter(([, span]) => !seen.has(span) && seen.add(span));
      return [...unique, ...Array.from(this.hardwareOf(chain), (span) => ["hardware", span])];
    }

    // Chains that a span is part of, or that operators inside it launched; at most `limit`, with their number.
    chainsFor(span, limit) {
      const found = new Set(this.chainsOf(span));
      const track = this.tracks[this.track[span]];
      const end = this.end(span);
      if (track.lane === "dispatch") {
        for (let i = span; i < track.last && this.start[i] < end; i++) {
          if (this.end(i) <= end) for (const chain of this.launchedBy(i)) found.add(chain);
        }
      }
      const all = [...found].sort((a, b) => a - b);
      return { chains: all.slice(0, limit), total: all.length };
    }

    // First position of a row whose span ends after `time`; rows hold disjoint spans in order.
    lower(row, time, starts = this.start, lengths = this.length) {
      let low = 0, high = row.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (starts[row[middle]] + lengths[row[middle]] > time) high = middle; else low = middle + 1;
      }
      return low;
    }

    // Marks of the spans whose name holds every word of the query (or equals it), and the spans in order of time.
    find(query, isExact = false) {
      const words = query.toLowerCase().split(/\s+/).filter(Boolean);
      if (!words.length) return null;
      const matches = this.texts.map((text) => (isExact ? text === query : words.every((w) => text.toLowerCase().includes(w))));
      const marks = new Uint8Array(this.spans);
      const found = [];
      for (let i = 0; i < this.spans; i++) if (matches[this.name[i]]) { marks[i] = 1; found.push(i); }
      found.sort((a, b) => this.start[a] - this.start[b] || a - b);
      return { marks, found };
    }
  }

  T.TimelineModel = TimelineModel;
})(Tracekit);
