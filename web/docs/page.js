// Shows /openapi.json and makes calls to the server that it came from. Everything is text nodes: nothing that the server
// or a model says becomes markup.
"use strict";

const METHODS = ["get", "post", "put", "delete"];
const SHOWN = 1 << 20; // characters of an answer

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// What stands in `backquotes` is code.
function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
}

function resolve(api, value) {
  while (value && value.$ref) {
    value = value.$ref.slice(2).split("/").reduce((place, name) => place[name], api);
  }
  return value;
}

function kindOf(api, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  // null is as good as absent everywhere, which the page says once.
  if (schema.anyOf) return schema.anyOf.filter((one) => one.type !== "null").map((one) => kindOf(api, one)).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const types = [].concat(schema.type ?? "anything").filter((type) => type !== "null");
  const names = types.map((type) => (type === "array" ? `list of ${kindOf(api, schema.items ?? {})}` : type));
  let text = names.join(" or ");
  if (schema.minimum !== undefined) text += `, ${schema.minimum} to ${schema.maximum}`;
  return text;
}

function fieldTable(api, schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) =>
    make("tr", {},
      make("td", {}, make("code", {}, name), (schema.required ?? []).includes(name) ? " *" : ""),
      make("td", {}, kindOf(api, field)),
      make("td", {}, ...prose(field.description ?? resolve(api, field).description ?? ""))));
  const head = make("tr", {}, ...["field", "kind", "meaning"].map((text) => make("th", { scope: "col" }, text)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function bodyPart(api, content) {
  const forms = content.schema.anyOf ?? [content.schema];
  const parts = [];
  for (const form of forms) {
    const schema = resolve(api, form);
    if (!schema.properties) continue;
    parts.push(make("h3", {}, "Body: ", kindOf(api, form)), fieldTable(api, schema));
    parts.push(make("p", { className: "hint" }, "* must be there; null is as good as absent for the others."));
    if (schema.description) parts.push(make("p", { className: "hint" }, ...prose(schema.description)));
  }
  return parts;
}

function answerTable(api, responses) {
  const rows = Object.entries(responses).map(([status, answer]) => {
    const known = resolve(api, answer);
    const kinds = Object.entries(known.content ?? {}).map(([type, one]) => (one.schema ? `${type}: ${kindOf(api, one.schema)}` : type));
    return make("tr", {}, make("td", {}, make("code", {}, status)), make("td", {}, known.description),
      make("td", {}, kinds.join("; ")));
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

async function send(call, controls) {
  const { status, output, button, stop } = controls;
  const abort = new AbortController();
  const began = performance.now();
  const took = () => `${((performance.now() - began) / 1000).toFixed(2)} s`;
  stop.onclick = () => abort.abort();
  button.disabled = true;
  stop.disabled = false;
  output.hidden = false;
  output.textContent = "";
  status.className = "status";
  status.textContent = "…";
  try {
    const answer = await fetch(call.path, { ...call.options, signal: abort.signal });
    status.className = answer.ok ? "status good" : "status bad";
    status.textContent = `${answer.status} ${answer.statusText}`;
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      output.textContent = (output.textContent + decoder.decode(part.value, { stream: true })).slice(-SHOWN);
    }
    if ((answer.headers.get("content-type") ?? "").startsWith("application/json") && output.textContent) {
      output.textContent = JSON.stringify(JSON.parse(output.textContent), null, 2);
    }
    status.textContent += ` in ${took()}, request ${answer.headers.get("x-request-id")}`;
  } catch (error) {
    status.className = "status bad";
    status.textContent = abort.signal.aborted ? `stopped after ${took()}` : `no answer: ${error.message}`;
  }
  button.disabled = false;
  stop.disabled = true;
}

// The part of an operation that makes calls.
function trial(method, path, operation) {
  const inputs = (operation.parameters ?? []).map((parameter) => {
    const { name, required, schema } = parameter;
    const hint = schema.enum?.join(", ") ?? "";
    const input = make("input", { name, required, placeholder: hint, title: schema.description ?? "", spellcheck: false });
    return { parameter, input, label: make("label", {}, `${parameter.name} `, input) };
  });
  const example = operation.requestBody?.content["application/json"].example ?? {};
  const text = JSON.stringify(example, null, 2);
  const body = operation.requestBody &&
    make("textarea", { spellcheck: false, value: text, rows: text.split("\n").length + 1, "aria-label": "Body" });
  const controls = {
    button: make("button", { type: "submit", className: "send" }, "Send"),
    stop: make("button", { type: "button", disabled: true }, "Stop"),
    status: make("span", { className: "status", role: "status" }),
    output: make("pre", { hidden: true, tabIndex: 0, "aria-label": "Answer" }),
  };
  const form = make("form", {},
    make("h3", {}, "Try it"),
    ...inputs.map((one) => make("div", { className: "row" }, one.label)),
    ...(body ? [body] : []),
    make("div", { className: "row" }, controls.button, controls.stop, controls.status),
    controls.output);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    let target = path;
    const headers = {};
    for (const { parameter, input } of inputs) {
      if (parameter.in === "path") target = target.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value.trim()) headers[parameter.name] = input.value.trim();
    }
    const key = document.getElementById("key").value.trim();
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
    send({ path: target, options: { method: method.toUpperCase(), headers, body: body?.value } }, controls);
  });
  return form;
}

function operationNode(api, method, path, operation) {
  const heading = make("summary", {},
    make("span", { className: `method ${method}` }, method.toUpperCase()),
    make("span", { className: "path" }, path),
    make("span", { className: "hint" }, operation.summary));
  const node = make("details", { className: "operation", id: operation.operationId }, heading);
  // Filled when it is first opened.
  node.addEventListener("toggle", () => {
    if (!node.open || node.children.length > 1) return;
    const inside = make("div", { className: "inside" });
    if (operation.description) inside.append(make("p", {}, ...prose(operation.description)));
    const content = operation.requestBody?.content["application/json"];
    inside.append(trial(method, path, operation));
    if (content) inside.append(...bodyPart(api, content));
    inside.append(make("h3", {}, "Answers"), answerTable(api, operation.responses));
    node.append(inside);
  });
  return node;
}

function show(api) {
  const main = document.getElementById("operations");
  const contents = document.getElementById("contents");
  const groups = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS) {
      if (!item[method]) continue;
      const tag = item[method].tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push([method, path, item[method]]);
    }
  }
  main.replaceChildren();
  for (const [tag, operations] of groups) {
    main.append(make("h2", {}, tag));
    const links = make("ul");
    for (const [method, path, operation] of operations) {
      main.append(operationNode(api, method, path, operation));
      links.append(make("li", {}, make("a", { href: `#${operation.operationId}` }, `${method.toUpperCase()} ${path}`)));
    }
    contents.append(make("h2", {}, tag), links);
  }
  const open = () => {
    const node = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (node && node.tagName === "DETAILS") {
      node.open = true;
      node.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
}

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("state").textContent = `The description could not be read: ${error.message}`;
  });
