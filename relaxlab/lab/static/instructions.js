// Words for instructions of x86-64, PTX and SASS, put together from the parts of their names.

const TYPES = { ps: "float32", pd: "float64", ss: "one float32", sd: "one float64", ph: "float16", d: "int32", q: "int64", w: "int16", b: "int8" };

/** [pattern, words]; `$T` in the words is the type that the pattern's last group names. */
const X86 = [
  [/^v?f(n?)m(add|sub)(?:132|213|231)(ps|pd|ss|sd)$/, (m) => `fused multiply and ${m[2]}${m[1] ? ", the product negated" : ""}: a·b ${m[2] === "add" ? "+" : "−"} c in one instruction`],
  [/^v?(add|sub|mul|div|max|min|sqrt)(ps|pd|ss|sd|ph)$/, (m) => ({ add: "add", sub: "subtract", mul: "multiply", div: "divide", max: "larger of two", min: "smaller of two", sqrt: "square root" })[m[1]]],
  [/^v?p(add|sub|mull|max[su]|min[su])([bwdq])$/, (m) => `${m[1].slice(0, 3)} of whole numbers`],
  [/^v?p?(and|or|xor|andn|ternlog)(ps|pd|d|q)?$/, (m) => (m[1] === "xor" ? "exclusive or; of a register with itself: set to zero" : `bitwise ${m[1]}`)],
  [/^v?(?:p?broadcast)(ss|sd|b|w|d|q)$/, () => "copy one number to all lanes"],
  [/^vbroadcast[fi]\d+x\d+$/, () => "copy a part to all parts of a vector"],
  [/^v?mova(ps|pd)$|^v?movdqa\d*$/, () => "move a vector; in memory it must be aligned"],
  [/^v?movu(ps|pd)$|^v?movdqu\d*$/, () => "move a vector, from or to any address"],
  [/^v?movnt\w*$/, () => "store past the caches (non-temporal)"],
  [/^v?p?gather\w+$/, () => "load lanes from different addresses"], [/^v?p?scatter\w+$/, () => "store lanes to different addresses"],
  [/^v?(?:p?extract|extract)\w+$/, () => "take a part out of a vector"], [/^v?(?:p?insert)\w+$/, () => "put a part into a vector"],
  [/^v?p?(?:shuf|perm|unpck|blend|movshdup|movsldup|align)\w*$/, () => "reorder or mix lanes"],
  [/^v?ps(?:ll|rl|ra)\w*$/, () => "shift the bits of each lane"],
  [/^v?(?:p?cmp|ucomi|comi)\w+$/, () => "compare"], [/^vcvt\w+$/, () => "convert between number types"],
  [/^vp?dp\w+$/, () => "dot product of small groups, added up"], [/^vzero(upper|all)$/, () => "clear the upper halves of vector registers, before other code"],
  [/^v?mov(ss|sd)$/, () => "move one number"], [/^k\w+$/, () => "work on a mask: a bit for each lane"],
  [/^prefetch\w+$/, () => "ask for a cache line before it is needed"], [/^lea[lq]?$/, () => "compute an address (no memory is read)"],
  [/^(movabs|mov)[bwlq]?$|^mov[sz]\w+$/, () => "move a whole number"], [/^cmov\w+$/, () => "move if a condition holds"],
  [/^(inc|dec|neg|not)[bwlq]?$/, (m) => ({ inc: "add 1", dec: "subtract 1", neg: "negate", not: "flip all bits" })[m[1]]],
  [/^(add|sub|and|or|xor|imul|mul|mulx|idiv|div|andn)[bwlq]?$/, (m) => `${m[1].replace(/^i(?=mul|div)|x$/g, "")} of whole numbers`],
  [/^(sh|sa|ro)(l|r)x?[bwlq]?$/, () => "shift or rotate bits"], [/^(cmp|test)[bwlq]?$/, () => "compare, for the jump that follows"],
  [/^set\w+$/, () => "1 if a condition holds, else 0"], [/^jmpq?$/, () => "jump"], [/^j[a-z]{1,3}$/, () => "jump if a condition holds"],
  [/^callq?$/, () => "call a function"], [/^retq?$/, () => "return"], [/^(push|pop)q?$/, (m) => (m[1] === "push" ? "save a register on the stack" : "take a register back from the stack")],
];

const PTX = [
  [/^fma\./, () => "fused multiply and add"], [/^ld\.(\w+)/, (m) => `load from ${m[1]} memory`], [/^st\.(\w+)/, (m) => `store to ${m[1]} memory`],
  [/^dp4a\./, () => "add products of four bytes"], [/^mad\./, () => "multiply and add whole numbers"], [/^setp\./, () => "compare into a predicate"], [/^bra/, () => "jump"],
  [/^bar\.|^barrier/, () => "wait for the other threads of the block"], [/^cvta?\./, () => "convert"], [/^mov\./, () => "move"],
  [/^shfl\./, () => "exchange between the threads of a warp"], [/^[wm]mma\./, () => "multiply matrices by a warp (tensor cores)"],
  [/^(add|sub|mul|div|max|min|and|or|xor|shl|shr|selp|ret)\b/, (m) => m[1]],
];

const SASS = [
  [/^LDGSTS/, () => "copy from main to shared memory without waiting (cp.async)"], [/^LDGDEPBAR|^DEPBAR/, () => "count the asynchronous copies to wait for"],
  [/^LDSM/, () => "load matrix fragments from shared memory (ldmatrix)"], [/^STSM/, () => "store matrix fragments to shared memory"],
  [/^(HG|QG|IG)MMA/, () => "multiply matrices by four warps (wgmma)"], [/^([HIQDB]|OM)MMA/, () => "multiply matrices by a warp (mma.sync)"],
  [/^UTMA/, () => "copy a tile by the tensor memory accelerator"], [/^SYNCS/, () => "work on a barrier of asynchronous copies (mbarrier)"],
  [/^(LD|ST)([GLSC])(?:\b|U)/, (m) => `${m[1] === "LD" ? "load from" : "store to"} ${{ G: "main memory", L: "local memory, where registers are lacking", S: "shared memory", C: "constant memory" }[m[2]]}`],
  [/^ULDC/, () => "load a constant or parameter for the whole warp"], [/^(ATOM|RED)/, () => "atomic update of memory"],
  [/^[HFD]FMA2?/, () => "fused multiply and add"], [/^IMAD/, () => "multiply and add whole numbers, or move"], [/^U?IADD3/, () => "add three whole numbers"],
  [/^[HFD](ADD|MUL|MNMX)2?/, (m) => ({ ADD: "add", MUL: "multiply", MNMX: "smaller or larger of two" })[m[1]]],
  [/^[UFHDI]*SETP/, () => "compare into a predicate"], [/^[FI]?SEL|^FSEL/, () => "one of two by a predicate"], [/^MUFU/, () => "approximate a function: reciprocal, root, exponential, logarithm"],
  [/^U?LOP3|^PLOP3/, () => "any bitwise operation of three operands"], [/^U?(SHF|SHL|SHR|LEA)/, () => "shift, or shift and add"], [/^PRMT/, () => "pick bytes of two registers"],
  [/^IDP/, () => "add products of bytes or half words (dp4a, dp2a)"], [/^[FI]2[FIB]|^F2FP/, () => "convert between number types"], [/^S2U?R|^CS2R/, () => "read a special register: number of the thread or block, clock"], [/^U?MOV|^R2U/, () => "move"],
  [/^SHFL/, () => "exchange between the threads of a warp"], [/^BAR|^WARPSYNC/, () => "wait for other threads"], [/^(BRA|EXIT|BSSY|BSYNC|CALL|RET|NOP|NANOSLEEP)/, (m) => ({ BRA: "jump", EXIT: "end of the thread", BSSY: "note where threads that part meet again", BSYNC: "meet again", CALL: "call a function", RET: "return", NOP: "nothing", NANOSLEEP: "wait" })[m[1]]],
];

/** What an instruction does, in some words; "" for those that are not known. */
export function instructionHelp(line) {
  const name = /^\s+(?:@!?%?\w+\s+)?([A-Za-z][\w.]*)/.exec(line)?.[1];
  if (!name) return "";
  const table = /^[A-Z]/.test(name) ? SASS : name.includes(".") ? PTX : [...X86, ...PTX];
  for (const [pattern, words] of table) {
    const found = pattern.exec(name);
    if (found) return `${name}: ${words(found)}${TYPES[found.at(-1)] && /^v/.test(name) ? ` (${TYPES[found.at(-1)]})` : ""}`;
  }
  return "";
}
