// Wrappers of sessionStorage and localStorage. Where storage is blocked or full, values are kept in memory
// and lost when the page is closed.

class Kept {
  #storage;
  #fallback = new Map();  // values that could not be stored

  constructor(name) {
    this.#storage = () => window[name];  // which throws where storage is blocked
  }

  get(key) {
    return this.#fallback.get(key) ?? this.#try((storage) => storage.getItem(key)) ?? null;
  }

  set(key, text) {
    this.remove(key);
    if (!this.#try((storage) => { storage.setItem(key, text); return true; })) this.#fallback.set(key, text);
  }

  remove(key) {
    this.#fallback.delete(key);
    this.#try((storage) => storage.removeItem(key));
  }

  #try(work) {
    try {
      return work(this.#storage());
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      return null;
    }
  }
}

export const inTab = new Kept('sessionStorage');
export const onDevice = new Kept('localStorage');
