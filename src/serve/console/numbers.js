// Numbers as people read them.

export function whole(n) {
  return Math.round(n).toLocaleString("en");
}

// Bytes in full below 10 KiB, else three digits and the unit.
export function bytes(n) {
  if (n < 10240) return `${whole(n)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = n / 1024;
  let i = 0;
  for (; value >= 1000 && i + 1 < units.length; ++i) value /= 1024;
  return `${value.toPrecision(3)} ${units[i]}`;
}

export function share(part, all) {
  if (all === 0) return "none";
  const percent = (100 * part) / all;
  return `${percent.toFixed(percent > 0 && percent < 10 ? 1 : 0)} %`;
}

export function short(n) {
  if (n >= 10_000_000) return `${(n / 1_000_000).toFixed(0)}M`;
  if (n >= 10_000) return `${(n / 1000).toFixed(0)}k`;
  return n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(2);
}

export function duration(s) {
  if (s < 120) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}
