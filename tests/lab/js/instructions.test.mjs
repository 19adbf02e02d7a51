import assert from "node:assert/strict";
import { test } from "node:test";

import { instructionHelp } from "../../../relaxlab/lab/static/instructions.js";

test("instructions are explained by the parts of their names", () => {
  const said = (line) => instructionHelp(`    ${line}`);
  assert.equal(said("vfmadd231ps %zmm1, %zmm2, %zmm3"), "vfmadd231ps: fused multiply and add: a·b + c in one instruction (float32)");
  assert.equal(said("vbroadcastss (%r10), %zmm1"), "vbroadcastss: copy one number to all lanes (one float32)");
  assert.equal(said("vaddps %zmm1, %zmm2, %zmm3"), "vaddps: add (float32)");
  assert.equal(said("jge .LBB6_13"), "jge: jump if a condition holds");
  assert.equal(said("imulq %rcx, %rax"), "imulq: mul of whole numbers");
  assert.equal(said("fma.rn.f32 %f1, %f2, %f3, %f4;"), "fma.rn.f32: fused multiply and add");
  assert.equal(said("dp4a.u32.s32 %r1, %r2, %r3, %r1;"), "dp4a.u32.s32: add products of four bytes");
  assert.equal(said("IDP.4A.U8.S8 R4, R20, R8, RZ"), "IDP.4A.U8.S8: add products of bytes or half words (dp4a, dp2a)");
  assert.equal(said("@%p1 bra $L1;"), "bra: jump");
});

test("what is no instruction or not known has no words", () => {
  assert.equal(instructionHelp(".LBB6_1:"), "");
  assert.equal(instructionHelp("    frobnicate %rax"), "");
});
