// What a person chose for the next answer: which model, and whether it is told what is remembered. It is
// the same on every branch, and kept on this device.
import { onDevice } from './kept.js';
import { useState } from './view.js';

const KEEP = 'sennit.choice';

/** [what to ask for, change]; a model that is known to be no longer there gives way to the server's first. */
export function useChoice(models) {
  const [kept, setKept] = useState(read);
  const known = models.find(({ name }) => name === kept.model) ?? models.find((one) => one.default);
  const model = models.length ? known?.name : kept.model;
  const change = (part) => {
    const now = { ...kept, ...part };
    onDevice.set(KEEP, JSON.stringify(now));
    setKept(now);
  };
  return [{ model, memory: kept.memory ?? true }, change];
}

function read() {
  try {
    return JSON.parse(onDevice.get(KEEP)) ?? {};
  } catch {
    return {};
  }
}
