// The server's key: for the session, or kept in the browser encrypted with a passphrase (PBKDF2, AES-GCM). Never in a URL,
// never in plain text in what outlives the tab.
import type { KeySource } from "./api.ts";
import { field, numberOr, parseJson, textOr } from "./json.ts";
import { Cell, Emitter } from "./observable.ts";
import type { TextStorage } from "./settings.ts";
import type { KeyState, KeyStore } from "./types.ts";

const rounds = 600_000;
const mostRounds = 10_000_000; // of what is read: a passphrase is not to take minutes
const sessionPlace = "quarrel.key";
const lastingPlace = "quarrel.key.encrypted";

/** Whether a header can carry it: printable ASCII without spaces. A browser sends no request with another. */
export function canBeSent(key: string): boolean {
  return /^[\x21-\x7e]+$/.test(key);
}

function toBase64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

async function keyOf(crypto: SubtleCrypto, passphrase: string, salt: Uint8Array<ArrayBuffer>, iterations: number): Promise<CryptoKey> {
  const material = await crypto.importKey("raw", new TextEncoder().encode(passphrase.normalize("NFC")), "PBKDF2", false, ["deriveKey"]);
  return crypto.deriveKey({ name: "PBKDF2", hash: "SHA-256", salt, iterations }, material, { name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
}

export async function encryptKey(crypto: SubtleCrypto, key: string, passphrase: string): Promise<string> {
  const salt = globalThis.crypto.getRandomValues(new Uint8Array(16));
  const iv = globalThis.crypto.getRandomValues(new Uint8Array(12));
  const cipher = await keyOf(crypto, passphrase, salt, rounds);
  const data = await crypto.encrypt({ name: "AES-GCM", iv }, cipher, new TextEncoder().encode(key));
  return JSON.stringify({ version: 1, rounds, salt: toBase64(salt), iv: toBase64(iv), data: toBase64(new Uint8Array(data)) });
}

/** null: another passphrase, or what is kept was changed. */
export async function decryptKey(crypto: SubtleCrypto, kept: string, passphrase: string): Promise<string | null> {
  const parts = parseJson(kept);
  const iterations = numberOr(field(parts, "rounds"), 0);
  if (iterations < 1 || iterations > mostRounds) return null;
  try {
    const cipher = await keyOf(crypto, passphrase, fromBase64(textOr(field(parts, "salt"), "")), iterations);
    const iv = fromBase64(textOr(field(parts, "iv"), ""));
    const data = await crypto.decrypt({ name: "AES-GCM", iv }, cipher, fromBase64(textOr(field(parts, "data"), "")));
    return new TextDecoder().decode(data);
  } catch {
    return null;
  }
}

export interface KeyPlaces {
  session: TextStorage | null;
  lasting: TextStorage | null;
  /** null: the page is not in a secure context. */
  crypto: SubtleCrypto | null;
}

/** false: the browser keeps nothing, and the key lives as long as the page. */
function attempt(action: () => void): boolean {
  try {
    action();
    return true;
  } catch {
    return false;
  }
}

export class Keys implements KeyStore, KeySource {
  readonly state: Cell<KeyState>;
  readonly refused = new Cell(false);
  readonly canEncrypt: boolean;
  readonly problem = new Cell("");
  /** Another key, or none. */
  readonly changed = new Emitter<undefined>();
  private readonly places: KeyPlaces;
  private key: string | null;
  private unproven: string | null = null; // encrypted, and kept once the server has taken the key

  constructor(places: KeyPlaces) {
    this.places = places;
    this.canEncrypt = places.crypto !== null && places.lasting !== null;
    const given = places.session?.getItem(sessionPlace) ?? null;
    this.key = given !== null && canBeSent(given) ? given : null;
    // One that is kept is unlocked for a server that asks for it: another one may run at this address without keys.
    this.state = new Cell<KeyState>(this.key !== null ? "given" : "open");
  }

  current(): string | null {
    return this.key;
  }

  isKept(): boolean {
    return this.kept() !== null;
  }

  refuse(used: string | null): void {
    if (used !== this.key) return; // another one was given meanwhile
    this.refused.set(used !== null);
    this.key = null;
    this.unproven = null;
    attempt(() => this.places.session?.removeItem(sessionPlace));
    this.state.set(used === null && this.kept() !== null ? "locked" : "needed");
  }

  /** The server has let in who came with this key. */
  accept(used: string | null): void {
    const { unproven } = this;
    if (used === null || used !== this.key || unproven === null) return;
    this.unproven = null;
    const isKept = attempt(() => this.places.lasting?.setItem(lastingPlace, unproven));
    this.problem.set(isKept ? "" : "The browser could not store your key: you will be asked for it when the page is next opened.");
  }

  giveForSession(key: string): void {
    attempt(() => this.places.session?.setItem(sessionPlace, key.trim()));
    this.take(key.trim());
  }

  async giveEncrypted(key: string, passphrase: string): Promise<void> {
    const { crypto, lasting } = this.places;
    if (crypto === null || lasting === null) throw new Error("Keys cannot be encrypted here: the page needs HTTPS or localhost.");
    const encrypted = await encryptKey(crypto, key.trim(), passphrase);
    this.take(key.trim(), encrypted);
  }

  async unlock(passphrase: string): Promise<boolean> {
    const kept = this.kept();
    if (kept === null || this.places.crypto === null) return false;
    const key = await decryptKey(this.places.crypto, kept, passphrase);
    if (key === null) return false;
    this.take(key);
    return true;
  }

  forget(): void {
    attempt(() => this.places.session?.removeItem(sessionPlace));
    attempt(() => this.places.lasting?.removeItem(lastingPlace));
    this.key = null;
    this.unproven = null;
    this.problem.set("");
    this.refused.set(false);
    this.state.set("open");
    this.changed.emit(undefined);
  }

  private take(key: string, unproven: string | null = null): void {
    this.key = key;
    this.unproven = unproven;
    this.problem.set("");
    this.refused.set(false);
    this.state.set("given");
    this.changed.emit(undefined);
  }

  private kept(): string | null {
    return this.canEncrypt ? (this.places.lasting?.getItem(lastingPlace) ?? null) : null;
  }
}
