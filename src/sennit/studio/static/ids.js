// Ids that the page makes itself, so that what is sent twice is taken once.

/** A UUID that grows with time (version 7), as all ids here do. */
export function newId() {
  const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  const time = Date.now().toString(16).padStart(12, '0');
  const random = hex(crypto.getRandomValues(new Uint8Array(10)));
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6, 18)}`;
}
