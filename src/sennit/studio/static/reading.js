// Hooks that load data from the server. A view shows the response to its latest request; a late response to
// an earlier one is dropped.
import { get, onBack } from './api.js';
import { attempt } from './toasts.js';
import { useEffect, useRef, useState } from './view.js';

const DEBOUNCE_MS = 180;

// Retry a failed load when the server is reachable again.
function useReturn(error, again) {
  useEffect(() => (error?.passing ? onBack(again, true) : undefined), [error]);
}

/** Load an address (null loads nothing) and return {answer, error, again}; a new `version` reloads it. */
export function useAnswer(address, version = 0) {
  const [state, setState] = useState({});
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (address === null) return undefined;
    const life = new AbortController();
    const settle = (outcome) => { if (!life.signal.aborted) setState({ address, ...outcome }); };
    get(address, { signal: life.signal }).then((answer) => settle({ answer }), (error) => settle({ error }));
    return () => life.abort();
  }, [address, version, tries]);
  const { answer, error } = state.address === address ? state : {};
  const again = () => { setState({}); setTries(tries + 1); };
  useReturn(error, again);
  return { answer, error, again };
}

/**
 * Load a paginated list: {items, next, error, more, again}. `asked` is its key; `read({limit, before, signal})`
 * returns {items, next}. A new `version` reloads the shown items; until then the old list stays.
 */
export function usePages(asked, read, { size, version = 0 }) {
  const [page, setPage] = useState({ items: null, next: null });
  const [tries, setTries] = useState(0);
  const life = useRef(null);
  useEffect(() => {
    const { signal } = life.current = new AbortController();
    const limit = Math.min(500, page.asked === asked ? Math.max(size, page.items.length) : size);
    read({ limit, signal }).then(
      (loaded) => { if (!signal.aborted) setPage({ asked, ...loaded }); },
      (error) => { if (!signal.aborted) setPage((now) => ({ ...now, error })); },
    );
    return () => life.current.abort();
  }, [asked, version, tries]);
  const more = async () => {
    const { signal } = life.current;
    const loaded = await attempt(() => read({ limit: size, before: page.next, signal }));
    if (!loaded || signal.aborted) return;
    setPage((now) => (now.next === page.next ? { ...now, items: [...now.items, ...loaded.items], next: loaded.next } : now));
  };
  const again = () => setTries(tries + 1);
  useReturn(page.error, again);
  return { ...page, more, again };
}

/** Debounce a value that is being typed. */
export function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), value ? DEBOUNCE_MS : 0);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
