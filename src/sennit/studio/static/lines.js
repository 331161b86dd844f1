// A limit on concurrent event streams. With HTTP/1.1 a browser opens six connections per server for all
// windows, and other requests need some too: windows take turns at four of them.

const NAMES = ['sennit.events.1', 'sennit.events.2', 'sennit.events.3', 'sennit.events.4'];
const TURN_MS = 1_000;

/**
 * Do `work` once a connection is free. When another window waits for the connection, `line` is aborted, unless
 * a person is at this one; who comes back then waits in turn. `line` ends the waiting, too.
 */
export async function inTurn(line, work) {
  if (!navigator.locks || manyConnections()) return work();  // a page that is not from https has no locks
  for (;;) {
    for (const name of NAMES) {
      const done = await navigator.locks.request(name, { ifAvailable: true }, (lock) => lock && held(name, line, work));
      if (done) return undefined;
    }
    const late = AbortSignal.timeout(2 * TURN_MS);  // whoever has this one may keep it for long
    const name = NAMES[Math.floor(Math.random() * NAMES.length)];
    try {
      await navigator.locks.request(name, { signal: AbortSignal.any([line.signal, late]) }, () => held(name, line, work));
      return undefined;
    } catch (error) {
      if (line.signal.aborted || error !== late.reason) throw error;
    }
  }
}

const manyConnections = () => /^h[23]/.test(performance.getEntriesByType('navigation')[0]?.nextHopProtocol);

async function held(name, line, work) {
  const timer = setInterval(async () => {
    if (document.hasFocus()) return;
    const { pending } = await navigator.locks.query();
    if (pending.some((lock) => lock.name === name)) line.abort();
  }, TURN_MS);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return true;
}
