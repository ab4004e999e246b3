import assert from "node:assert/strict";
import { test } from "node:test";
import { canBeSent, decryptKey, encryptKey, Keys } from "../../src/core/keys.ts";
import type { TextStorage } from "../../src/core/settings.ts";

class Kept implements TextStorage {
  readonly values = new Map<string, string>();
  getItem(name: string): string | null {
    return this.values.get(name) ?? null;
  }
  setItem(name: string, value: string): void {
    this.values.set(name, value);
  }
  removeItem(name: string): void {
    this.values.delete(name);
  }
}

const key = "qk_secret";

test("an encrypted key needs its passphrase, and shows nothing of itself", async () => {
  const kept = await encryptKey(crypto.subtle, key, "open sesame");
  assert.ok(!kept.includes("secret") && !kept.includes("sesame"));
  assert.equal(await decryptKey(crypto.subtle, kept, "open sesame"), key);
  assert.equal(await decryptKey(crypto.subtle, kept, "open Sesame"), null);
  assert.equal(await decryptKey(crypto.subtle, kept.replace(/"data":"./, '"data":"_'), "open sesame"), null);
  assert.equal(await decryptKey(crypto.subtle, "nonsense", "open sesame"), null);
  assert.notEqual(await encryptKey(crypto.subtle, key, "open sesame"), kept, "never the same twice");
});

test("a key for the session is not in what lasts", () => {
  const session = new Kept();
  const lasting = new Kept();
  const keys = new Keys({ session, lasting, crypto: crypto.subtle });
  assert.equal(keys.state.get(), "open");
  keys.refuse(null);
  assert.equal(keys.state.get(), "needed");
  keys.giveForSession(` ${key}\n`);
  assert.deepEqual([keys.current(), keys.state.get(), lasting.values.size], [key, "given", 0]);
  assert.equal(new Keys({ session, lasting, crypto: crypto.subtle }).current(), key, "the page was loaded again");
});

test("a key is kept once the server has taken it, and never when it was refused", async () => {
  const lasting = new Kept();
  const keys = new Keys({ session: new Kept(), lasting, crypto: crypto.subtle });
  await keys.giveEncrypted("qk_wrong", "pass");
  keys.refuse("qk_wrong");
  keys.accept("qk_wrong");
  assert.equal(lasting.values.size, 0);
  await keys.giveEncrypted(key, "pass");
  keys.accept("another");
  assert.equal(lasting.values.size, 0);
  keys.accept(key);
  assert.equal(lasting.values.size, 1);
});

test("a key that lasts is unlocked for a server that asks for one, and a refused one is asked for anew", async () => {
  const lasting = new Kept();
  const before = new Keys({ session: new Kept(), lasting, crypto: crypto.subtle });
  await before.giveEncrypted(key, "pass");
  before.accept(key);
  const keys = new Keys({ session: new Kept(), lasting, crypto: crypto.subtle });
  assert.deepEqual([keys.state.get(), keys.current(), keys.isKept()], ["open", null, true], "the server may want none");
  keys.refuse(null);
  assert.deepEqual([keys.state.get(), keys.current(), keys.refused.get()], ["locked", null, false]);
  assert.equal(await keys.unlock("other"), false);
  assert.equal(await keys.unlock("pass"), true);
  keys.refuse("an older one");
  assert.equal(keys.state.get(), "given", "it was not this one");
  keys.refuse(key);
  assert.deepEqual([keys.state.get(), keys.refused.get(), keys.current()], ["needed", true, null]);
  keys.forget();
  assert.equal(lasting.values.size, 0);
});

test("without a secure context keys are for the session", async () => {
  const keys = new Keys({ session: null, lasting: new Kept(), crypto: null });
  assert.equal(keys.canEncrypt, false);
  await assert.rejects(keys.giveEncrypted(key, "pass"), /HTTPS/);
  keys.giveForSession(key);
  assert.equal(keys.current(), key);
});

test("a key that no request can carry is not taken", () => {
  assert.deepEqual([key, "!~", "qk_schlüssel", "qk_a b", "qk_a\u200b", "qk_a\n", ""].map((one) => canBeSent(one)), [true, true, false, false, false, false, false]);
  const session = new Kept();
  session.setItem("quarrel.key", "qk_schlüssel");
  assert.deepEqual(new Keys({ session, lasting: null, crypto: null }).state.get(), "open", "the server will ask for one");
});

test("a key that could not be stored is told of", async () => {
  class Full extends Kept {
    isFull = true;
    override setItem(name: string, value: string): void {
      if (this.isFull) throw new DOMException("full", "QuotaExceededError");
      super.setItem(name, value);
    }
  }
  const lasting = new Full();
  const keys = new Keys({ session: null, lasting, crypto: crypto.subtle });
  await keys.giveEncrypted(key, "pass");
  assert.equal(keys.problem.get(), "");
  keys.accept(key);
  assert.deepEqual([keys.current(), lasting.values.size], [key, 0]);
  assert.match(keys.problem.get(), /could not store your key/);
  lasting.isFull = false;
  await keys.giveEncrypted(key, "pass");
  keys.accept(key);
  assert.deepEqual([keys.problem.get(), lasting.values.size], ["", 1]);
});
