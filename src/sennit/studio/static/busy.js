// Something that takes its time: done once however often it is pressed, and seen to be under way.
import { attempt } from './toasts.js';
import { useRef, useState } from './view.js';

/** [busy, act]: `act(work)` attempts the work, unless the work before it is still under way; then it gives null. */
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
