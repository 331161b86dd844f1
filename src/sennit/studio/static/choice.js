// The options of the next answer: the model, and whether to use memory. They apply to every branch and are
// stored on this device.
import { onDevice } from './kept.js';
import { useState } from './view.js';

const KEEP = 'sennit.choice';

/** Return [options, change]; a model that the server no longer has is replaced by its default. */
export function useChoice(models) {
  const [kept, setKept] = useState(read);
  const known = models.find(({ name }) => name === kept.model) ?? models.find((entry) => entry.default);
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
