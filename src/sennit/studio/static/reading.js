// What the server tells, as views read it. A view shows the answer to what it asked last: one that comes
// late, to a question of before, is never drawn.
import { get, onBack } from './api.js';
import { attempt } from './toasts.js';
import { useEffect, useRef, useState } from './view.js';

const PAUSE = 180;

// What could not be read because the server was away is read when it is back.
function useReturn(error, again) {
  useEffect(() => (error?.passing ? onBack(again, true) : undefined), [error]);
}

/** {answer, error, again} of an address (null asks nothing); a new `version` asks once more. */
export function useAnswer(address, version = 0) {
  const [state, setState] = useState({});
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (address === null) return undefined;
    const life = new AbortController();
    const settle = (told) => { if (!life.signal.aborted) setState({ address, ...told }); };
    get(address, { signal: life.signal }).then((answer) => settle({ answer }), (error) => settle({ error }));
    return () => life.abort();
  }, [address, version, tries]);
  const { answer, error } = state.address === address ? state : {};
  const again = () => { setState({}); setTries(tries + 1); };
  useReturn(error, again);
  return { answer, error, again };
}

/**
 * {items, next, error, more, again}: a list read page by page. `asked` names the list; `read({limit, before, signal})`
 * gives {items, next}. A new `version` reads again as much as is shown; until it is there, the old list stays.
 */
export function usePages(asked, read, { size, version = 0 }) {
  const [page, setPage] = useState({ items: null, next: null });
  const [tries, setTries] = useState(0);
  const life = useRef(null);
  useEffect(() => {
    const { signal } = life.current = new AbortController();
    const limit = Math.min(500, page.asked === asked ? Math.max(size, page.items.length) : size);
    read({ limit, signal }).then(
      (told) => { if (!signal.aborted) setPage({ asked, ...told }); },
      (error) => { if (!signal.aborted) setPage((now) => ({ ...now, error })); },
    );
    return () => life.current.abort();
  }, [asked, version, tries]);
  const more = async () => {
    const { signal } = life.current;
    const told = await attempt(() => read({ limit: size, before: page.next, signal }));
    if (!told || signal.aborted) return;
    setPage((now) => (now.next === page.next ? { ...now, items: [...now.items, ...told.items], next: told.next } : now));
  };
  const again = () => setTries(tries + 1);
  useReturn(page.error, again);
  return { ...page, more, again };
}

/** A value that a person is still changing, once they pause. */
export function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), value ? PAUSE : 0);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
