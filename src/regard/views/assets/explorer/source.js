// Where answers come from: `source.models()`, `source.read(asked)`, `source.ask(what, asked)`; each promises a record.
// A reading that the server no longer keeps is read again, so that a page may stay open for days.

export class Refusal extends Error {
  constructor(record) {
    super(record.remedy ? `${record.error}: ${record.remedy}` : record.error);
    this.record = record;
  }
}

export class HttpSource {
  get asksAnew() {
    return true; // of the model, and not of a recording alone
  }

  constructor() {
    this.session = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    this.names = new Map(); // the server's name of each reading, by what was asked
  }

  async send(path, body, signal) {
    const options = body === undefined ? {} : {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Session": this.session },
      body: JSON.stringify(body),
    };
    let response;
    try {
      response = await fetch("api/" + path, { ...options, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refusal({ error: "the explorer does not answer", remedy: "start it again: regard explore MODEL" });
    }
    const record = await response.json();
    if (record.error) throw new Refusal(record);
    return record;
  }

  models() {
    return this.send("models");
  }

  async read(asked) {
    const record = await this.send("read", asked);
    this.names.set(record.reading, { name: record.reading, asked });
    return record;
  }

  async ask(what, { reading, ...asked }, signal) {
    const known = this.names.get(reading);
    try {
      return await this.send("ask/" + what, { reading: known?.name ?? reading, ...asked }, signal);
    } catch (error) {
      if (!error.record?.gone || !known) throw error;
      known.renewed ??= this.send("read", known.asked).finally(() => { known.renewed = null; });
      known.name = (await known.renewed).reading;
      return this.send("ask/" + what, { reading: known.name, ...asked }, signal);
    }
  }
}

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };

// Numbers as they were packed: `{ shape, data }`.
export function unpack(packed) {
  const raw = atob(packed.data);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return { shape: packed.shape, data: new ARRAYS[packed.type](bytes.buffer) };
}
