// Reads what columns.py wrote: base64 → deflate → byte planes → numbers (NaN for null).
((T) => {
  const bytesOf = (base64) => {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  };

  const inflate = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  const joined = (raw, offset, { rows, planes }) => {
    const out = new Float64Array(rows);
    for (let plane = 0, scale = 1; plane < planes; plane++, scale *= 256) {
      const from = offset + plane * rows;
      for (let i = 0; i < rows; i++) out[i] += raw[from + i] * scale;
    }
    return out;
  };

  const restored = (values, { delta, zigzag }) => {
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      let value = values[i];
      if (zigzag) value = value % 2 ? -(value + 1) / 2 : value / 2;
      if (delta) value = sum += value;
      values[i] = value === 0 ? NaN : value > 0 ? value - 1 : value;
    }
    return values;
  };

  T.unpack = async (directory, base64) => {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("This browser is too old to read the timeline (it lacks DecompressionStream).");
    }
    const raw = await inflate(bytesOf(base64));
    const columns = {};
    let offset = 0;
    for (const entry of directory) {
      columns[entry.name] = restored(joined(raw, offset, entry), entry);
      offset += entry.rows * entry.planes;
    }
    return columns;
  };

  // Row numbers: -1 for null.
  T.indices = (values) => Int32Array.from(values, (value) => (Number.isNaN(value) ? -1 : value));
})(Tracekit);
