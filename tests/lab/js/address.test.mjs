import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, chosenIn } from "../../../relaxlab/lab/static/address.js";

const TITLES = ["Pipeline", "Costs of steps"];

test("the tab and what was chosen in it come back from the address", () => {
  const chosen = { tab: 1, "1.step main": 3, "1.search": "12", "1.find": "relu & x:y", "1.all": true, "0.pass": 7, "1.open": [1] };
  const address = addressOf(chosen, TITLES);
  assert.match(address, /^costs-of-steps:step\+main=3/);
  const { "0.pass": _, "1.open": __, ...kept } = chosen;
  assert.deepEqual(chosenIn(`#${address}`, TITLES), kept);
});

test("a view without tabs has no tab in its address", () => {
  assert.equal(addressOf({ step: 2 }, []), "step=2");
  assert.deepEqual(chosenIn("#step=2", []), { step: 2 });
  assert.deepEqual(chosenIn("", []), {});
});

test("an address that was damaged gives what can be read", () => {
  assert.deepEqual(chosenIn("#nowhere:step=3", TITLES), { "0.step": 3 });
  assert.deepEqual(chosenIn("#pipeline:find=%22x", TITLES), { "0.find": "\"x" });
});
