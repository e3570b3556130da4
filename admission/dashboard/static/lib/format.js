// Formatting of amounts, times and names for people.

const SUFFIXES = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };

// Converts a Kubernetes quantity ("500m", "1280Gi") to a number: cores, bytes or units.
export function amount(quantity) {
  const found = /^([+-]?[0-9.]+(?:[eE][+-]?\d+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$/.exec(String(quantity ?? "0"));
  return found ? Number(found[1]) * SUFFIXES[found[2] || ""] : 0;
}

// Quantities of Kubernetes that are not negative.
export const QUANTITY = /^\+?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE])?$/;

const isBytes = (resource) => /memory|storage|hugepages/.test(resource);

// What is in use is never shown as 0, not even a millicore.
function rounded(value) {
  if (value > 0 && value < 0.001) return "<0.001";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 0.01 ? 2 : 3;
  return Number(value.toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits });
}

// Formats a number as an amount of a resource: 16, 1.5, 640 Gi.
export function shown(resource, value) {
  if (!isBytes(resource)) return rounded(value);
  let number = value, unit = 0;
  const units = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
  while (Math.abs(number) >= 2048 && unit < units.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${rounded(number)} ${units[unit]}`;
}

// Converts resource-seconds to hours of the resource: GPU hours, CPU hours, GiB hours.
export function hours(resource, seconds) {
  return isBytes(resource) ? rounded(seconds / 3600 / 2 ** 30) : rounded(seconds / 3600);
}

const NAMES = { cpu: "CPU", memory: "Memory", pods: "Pods", "ephemeral-storage": "Disk" };

// Name of a resource for headings: CPU, Memory, GPU, and GPU (amd) for those of other vendors.
export function resourceName(resource) {
  if (NAMES[resource]) return NAMES[resource];
  const found = /^(?:([\w-]+)\.com\/)?(.+)$/.exec(resource);
  if (found && found[2] === "gpu") return found[1] && found[1] !== "nvidia" ? `GPU (${found[1]})` : "GPU";
  return resource;
}

export const hoursName = (resource) => `${isBytes(resource) ? "GiB" : resourceName(resource)} hours`;

// Formats seconds: 45 s, 12 min, 3 h 20 min, 2 d 4 h.
export function duration(seconds) {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  const minutes = Math.floor(total / 60);
  if (minutes < 60) return `${minutes} min`;
  const hour = Math.floor(minutes / 60);
  if (hour < 24) return minutes % 60 ? `${hour} h ${minutes % 60} min` : `${hour} h`;
  return hour % 24 ? `${Math.floor(hour / 24)} d ${hour % 24} h` : `${Math.floor(hour / 24)} d`;
}

export const seconds = (time) => Date.parse(time) / 1000;

const DATE_TIME = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const dateTime = (time) => DATE_TIME.format(new Date(time));
export const fullTime = (time) => FULL.format(new Date(time));
const DAY_UTC = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

export const clock = (time) => HOUR.format(new Date(time));
export const day = (time) => DAY.format(new Date(time));
// The day of the usage report that begins at a time: its days are those of UTC, wherever the browser is.
export const dayOfReport = (time) => DAY_UTC.format(new Date(time));

export const count = (number) => (number ?? 0).toLocaleString("en");
export const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
