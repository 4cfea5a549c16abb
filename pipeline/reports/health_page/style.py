"""How the report of `gemmed health` looks."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fff; --ink: #1b1f24; --soft: #59636e; --rule: #d5dae0; --shade: #f4f6f8; --link: #0b57d0;
  --good: #2a9d8f; --degraded: #d99a00; --bad: #b3261e; --off: #6e7781; --unknown: #a0a8b0;
  --level: #1f5fa8; --floor: #96631f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --ink: #e6e9ed; --soft: #a3adb8; --rule: #3a424b; --shade: #1e2329; --link: #8ab4f8;
    --good: #4fc3b0; --degraded: #f2c14e; --bad: #ff7b6b; --off: #8b949e; --unknown: #67717c;
    --level: #7db7ff; --floor: #d9a860;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3, caption { font-size: 1rem; font-weight: 600; margin: 1rem 0 .25rem; text-align: left; }
a { color: var(--link); }
ul { margin: 0; padding-left: 1.2rem; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 0; font-size: .9rem; }
dl div { display: flex; gap: .4rem; }
dt { color: var(--soft); }
dd { margin: 0; }
.lead { font-size: 1.15rem; font-weight: 600; border-left: 4px solid var(--link); padding-left: .75rem; }
.note { color: var(--soft); }
.definitions { position: absolute; }

table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { padding: .75rem 0 .25rem; font-size: .95rem; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; overflow-wrap: normal; }
td:is([data-of=available], [data-of=heard], [data-of=for]) { white-space: nowrap; }
td:is([data-of=from], [data-of=to], [data-of=when]) { overflow-wrap: normal; }
td:is([data-of=evidence], [data-of="what to do"]) { min-width: 11rem; }
td[data-of=sensor] { min-width: 5rem; }
.meaning { display: block; color: var(--soft); }
.badge { display: inline-flex; align-items: flex-end; gap: .35rem; white-space: nowrap; margin-right: .9rem; }
.badge .cell { margin-bottom: .3rem; }

.cell { display: block; width: 12px; height: 13px; }
.cell { background: linear-gradient(var(--of), var(--of)) bottom / 100% var(--tall) no-repeat; }
.cell.bad { --of: var(--bad); --tall: 100%; }
.cell.degraded { --of: var(--degraded); --tall: 64%; }
.cell.good { --of: var(--good); --tall: 28%; }
.cell.off { background: none; border: 1px solid var(--off); }
.cell.unknown { --of: var(--unknown); --tall: 12%; }
.overview { display: flex; flex-wrap: wrap; gap: .75rem 1.25rem; }
.group .first { margin: 0; font-size: .8rem; color: var(--soft); max-width: 280px; }
.columns { display: flex; }
.columns a { width: 13px; }
.labels { min-width: 20px; }
.legend { display: flex; flex-wrap: wrap; align-items: center; gap: 0 .5rem; margin: .5rem 0; }
.labels b, .group a .cell { display: block; height: 13px; margin-bottom: 3px; }
.labels b { font: 11px/13px system-ui, sans-serif; color: var(--soft); padding-right: 6px; text-align: right; }
.group a:hover, .group a:focus-visible { background: var(--rule); outline: 2px solid var(--link); }

details { margin: .5rem 0; }
summary { cursor: pointer; padding: .4rem 0; color: var(--soft); }
summary .name { font-weight: 600; color: var(--ink); }
.recording { border-top: 1px solid var(--rule); }
.recording:target { outline: 2px solid var(--link); outline-offset: 4px; }

.picture { padding: 0 2px 0 40px; overflow: hidden; }
.picture svg { display: block; overflow: visible; }
.picture svg svg { overflow: hidden; }
.picture text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.picture .name, .picture .mark { font-weight: 700; fill: var(--ink); }
.picture .cause { fill: var(--ink); }
.picture .hole, .picture .mark, .picture .cause { paint-order: stroke; stroke: var(--page); stroke-width: 3px; }
.picture .gutter { font-size: 10px; }
.picture path, .picture line { vector-effect: non-scaling-stroke; }
.grid, .frame { stroke: var(--rule); stroke-width: 1; }
.grid { stroke-dasharray: 2 3; }
.state { stroke-width: 1; }
.state.bad { fill: var(--bad); stroke: var(--bad); }
.state.degraded { fill: var(--degraded); stroke: var(--degraded); }
.state.good { fill: var(--good); }
.state.off { fill: none; stroke: var(--off); }
.state.unknown { fill: var(--unknown); }
path.level, path.floor { stroke-width: 1.5; fill-opacity: .35; stroke-linejoin: round; }
path.level { stroke: var(--level); fill: none; }
path.floor { stroke: var(--floor); fill: none; stroke-width: 1; }
path.level.band { fill: var(--level); stroke-width: .75; }
path.floor.band { fill: var(--floor); stroke-width: .75; }
b.level { color: var(--level); }
b.floor { color: var(--floor); }
.silent { fill: var(--rule); fill-opacity: .5; }
.missing, .gap { fill: url(#hatch) var(--rule); }
.hatch { stroke: var(--soft); stroke-width: 1.2; }
.chance { stroke: var(--ink); stroke-width: 2.5; stroke-linecap: round; stroke-opacity: .6; fill: none; }
.alpha { stroke: var(--bad); stroke-width: 1; stroke-dasharray: 4 3; fill: none; }

@media (max-width: 54rem) {
  main { padding: .75rem; }
  table, tbody, tr, td, caption { display: block; }
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  td { display: grid; grid-template-columns: 7rem 1fr; padding: .1rem 0; border: 0; }
  td::before { content: attr(data-of); color: var(--soft); }
  td > * { grid-column: 2; }
  td:is([data-of=evidence], [data-of="what to do"]) { min-width: 0; }
}
@media print {
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  .picture, tr, .group { break-inside: avoid; }
  h2, h3, summary, caption, thead { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
