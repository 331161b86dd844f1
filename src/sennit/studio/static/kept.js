// What a browser keeps for the page: in a tab over a reload, or on this device. One that keeps nothing, or no
// more, gets a page that works all the same and forgets when it is left.

class Kept {
  #storage;
  #others = new Map();  // what could not be kept

  constructor(name) {
    this.#storage = () => window[name];  // which throws where pages may keep nothing
  }

  get(key) {
    return this.#others.get(key) ?? this.#try((storage) => storage.getItem(key)) ?? null;
  }

  set(key, text) {
    this.remove(key);
    if (!this.#try((storage) => { storage.setItem(key, text); return true; })) this.#others.set(key, text);
  }

  remove(key) {
    this.#others.delete(key);
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
