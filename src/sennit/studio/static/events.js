// The event stream of a branch, over fetch because EventSource cannot send an Authorization header. A
// dropped connection is resumed after the last event seen, so that none is missed or applied twice.
import { open, parsed as parsedJson, pause } from './api.js';
import { inTurn } from './lines.js';

const MIN_BACKOFF_MS = 300;
const MAX_BACKOFF_MS = 8_000;
const SILENCE_MS = 45_000;  // the server sends a keep-alive every 15 seconds

/**
 * Follow `address` from after event `after` until nothing is under way, or `signal` is aborted. A run may
 * end, wait for a person and go on, so its end is the end only if the server then closes the stream.
 * A tab that nobody sees lets go of its connection, and goes on once it is seen; those that are seen take turns.
 * `onEvent` gets {seq, kind, data}, each when it is done with the one before; `onLink` is told whether the
 * connection stands; `underWay` is asked whether to come back when the stream was closed without an end.
 */
export async function follow(address, { after, signal, onEvent, onLink, underWay }) {
  let last = { seq: after };
  let wait = MIN_BACKOFF_MS;
  while (!signal.aborted) {
    await untilSeen(signal);
    if (signal.aborted) return;
    const line = new AbortController();
    const hide = () => { if (document.hidden) line.abort(); };
    document.addEventListener('visibilitychange', hide);
    const leave = () => line.abort();
    signal.addEventListener('abort', leave);
    try {
      await inTurn(line, async () => {
        const headers = { Accept: 'text/event-stream', 'Last-Event-ID': String(last.seq) };
        const response = await open('GET', address, { headers, signal: line.signal });
        onLink(true);
        for await (const event of parsed(response.body)) {
          if (event.seq <= last.seq) continue;
          wait = MIN_BACKOFF_MS;
          last = event;
          await onEvent(event);
        }
      });
      if (last.kind === 'run.ended' || !await underWay()) return;
    } catch (error) {
      if (signal.aborted) return;
      if (line.signal.aborted) continue;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    } finally {
      document.removeEventListener('visibilitychange', hide);
      signal.removeEventListener('abort', leave);
    }
    onLink(false);
    await pause(wait, signal);
    wait = Math.min(wait * 2, MAX_BACKOFF_MS);
  }
}

function untilSeen(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener('visibilitychange', look);
      signal.removeEventListener('abort', look);
      resolve();
    };
    document.addEventListener('visibilitychange', look);
    signal.addEventListener('abort', look);
    look();
  });
}

async function* parsed(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await unlessSilent(reader.read());
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {});  // it may already be closed
  }
}

// A dead connection looks like an idle one: time out.
function unlessSilent(piece) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('The event stream timed out.')), SILENCE_MS);
  });
  return Promise.race([piece, silence]).finally(() => clearTimeout(timer));
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
    if (data) yield { seq: Number(id), kind: event, data: parsedJson(data.join('\n')) };
  }
}
