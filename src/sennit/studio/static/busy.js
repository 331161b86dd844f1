// A busy flag for slow actions: repeated clicks run the action once.
import { attempt } from './toasts.js';
import { useRef, useState } from './view.js';

/** Return [busy, act]: `act(work)` runs the work, or returns null while the previous one is running. */
export function useBusy() {
  const [busy, setBusy] = useState(false);
  const working = useRef(false);
  const act = async (work) => {
    if (working.current) return null;
    working.current = true;
    setBusy(true);
    const done = await attempt(work);
    working.current = false;
    setBusy(false);
    return done;
  };
  return [busy, act];
}
