// A profile: what each kernel took together, and where it stands under the machine's roofline.

/**
 * The calls of each name together, the dearest first: calls, seconds, and where all costs are known
 * flops and bytes, else null.
 * @param {{names: string[], calls: {name: number, seconds: number, cost: {flops: number, bytes: number} | null}[]}} profile
 */
export function byKernel(profile) {
  const found = profile.names.map((name, i) => ({ name, index: i, calls: 0, seconds: 0, flops: 0, bytes: 0, known: true }));
  for (const call of profile.calls) {
    const one = found[call.name];
    one.calls += 1;
    one.seconds += call.seconds;
    one.known &&= call.cost !== null;
    one.bound = call.bound; // of a predicted time
    one.flops += call.cost?.flops ?? 0;
    one.bytes += call.cost?.bytes ?? 0;
  }
  return found.sort((a, b) => b.seconds - a.seconds);
}

/** What a kernel could reach at most, flops per second, with `intensity` flops per byte from a level of memory. */
export const roof = (intensity, limits, level) => Math.min(limits.flops, intensity * level.bandwidth);

/** Main memory, the last of the levels. */
export const mainMemory = (limits) => limits.levels[limits.levels.length - 1];

/**
 * Where a kernel stands: intensity, flops per second, bytes per second, and the part of its roof,
 * which is that of the nearest level of memory that holds all bytes of a call.
 */
export function standing(kernel, limits) {
  if (!kernel.known || !kernel.seconds) return null;
  const bandwidth = kernel.bytes / kernel.seconds;
  const rate = kernel.flops / kernel.seconds;
  const intensity = kernel.bytes ? kernel.flops / kernel.bytes : null;
  const level = limits.levels.find(({ holds }) => holds === null || kernel.bytes / kernel.calls <= holds);
  const top = intensity === null ? limits.flops : roof(intensity, limits, level);
  const bound = top === limits.flops ? "arithmetic" : level.name;
  const part = kernel.flops ? rate / top : bandwidth / level.bandwidth;
  return { intensity, rate, bandwidth, bound, part };
}

/** Powers of ten that hold all numbers, as exponents. */
export function decades(numbers) {
  const logs = numbers.filter((n) => n > 0).map(Math.log10);
  if (!logs.length) return [0, 1];
  return [Math.floor(Math.min(...logs)), Math.max(Math.ceil(Math.max(...logs)), Math.floor(Math.min(...logs)) + 1)];
}

/** Where the registers of a run are after a step, by activation: register -> [value, place]. */
export function registersAt(run, step) {
  const found = run.activations.map(() => new Map());
  const symbols = run.activations.map(() => new Map());
  for (let i = 0; i <= step; i += 1) {
    for (const [frame, register, value, place] of run.steps[i].changes) {
      found[frame].delete(register); // what changed last comes last
      found[frame].set(register, [value, place]);
    }
    for (const [frame, name, number] of run.steps[i].symbols) symbols[frame].set(name, number);
  }
  return { registers: found, symbols };
}

/** The functions that are running at a step, the innermost last. */
export function stackOf(run, activation) {
  const found = [];
  for (let at = activation; at >= 0; at = run.activations[at].parent) found.unshift(at);
  return found;
}

/** Seconds that each thread worked, and waited at barriers, in calls. */
export const laneTotals = (profile) => profile.lanes.map((lane) => {
  const sum = (waits) => lane.reduce((n, [, , took, w]) => (w === waits ? n + took / 1e9 : n), 0);
  return { works: sum(0), waits: sum(1) };
});

/** The call of a kernel that a thread was in at a time: threads begin and end calls at times of their
 * own, so it is the nearest one. */
export function nearestCall(profile, name, time) {
  const apart = (c) => Math.max(c.start - time, time - (c.start + c.seconds), 0);
  let best = -1;
  profile.calls.forEach((c, i) => {
    if (c.name === name && (best < 0 || apart(c) < apart(profile.calls[best]))) best = i;
  });
  return best;
}
