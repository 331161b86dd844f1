// Connections over which events come. A browser has six to a server for all its windows, unless it speaks
// HTTP/2, and whatever else a page asks for needs one too: windows take turns at four of them.

const NAMES = ['sennit.events.1', 'sennit.events.2', 'sennit.events.3', 'sennit.events.4'];
const TURN = 1_000;

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
    const late = AbortSignal.timeout(2 * TURN);  // whoever has this one may keep it for long
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
    if (pending.some((one) => one.name === name)) line.abort();
  }, TURN);
  try {
    await work();
  } finally {
    clearInterval(timer);
  }
  return true;
}
