// Events of a branch as they happen, over fetch so that a token can stand in a header (EventSource
// cannot send one). A dropped connection goes on after the last event seen; none is missed or
// seen twice.
import { open } from './api.js';

const FIRST_WAIT = 300;
const LONGEST_WAIT = 8_000;

/**
 * Follow `address` from after event `after` until nothing is under way, or `signal` is aborted. A run may
 * end, wait for a person and go on, so its end is the end only if the server then closes the stream.
 * `onEvent` gets {seq, kind, data}; `onLink` is told whether the connection stands; `underWay` is asked
 * whether to come back when the stream was closed without an end.
 */
export async function follow(address, { after, signal, onEvent, onLink, underWay }) {
  let last = { seq: after };
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    try {
      const headers = { Accept: 'text/event-stream', 'Last-Event-ID': String(last.seq) };
      const response = await open('GET', address, { headers, signal });
      onLink(true);
      for await (const event of parsed(response.body)) {
        if (event.seq <= last.seq) continue;
        wait = FIRST_WAIT;
        last = event;
        onEvent(event);
      }
      if (last.kind === 'end' || !await underWay()) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    }
    onLink(false);
    await pause(wait, signal);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener('abort', () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

async function* parsed(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Server-sent events from text that arrives in any pieces. */
export class EventParser {
  #rest = '';
  #event = {};

  *feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === '') yield* this.#done();
      else this.#field(line);
    }
  }

  #field(line) {
    if (line.startsWith(':')) return;
    const [, name, value] = /^([^:]*)(?::\s?)?([^]*)$/.exec(line);
    if (name === 'data') this.#event.data = (this.#event.data ?? []).concat(value);
    else this.#event[name] = value;
  }

  *#done() {
    const { id, event, data } = this.#event;
    this.#event = {};
    if (data) yield { seq: Number(id), kind: event, data: JSON.parse(data.join('\n')) };
  }
}
