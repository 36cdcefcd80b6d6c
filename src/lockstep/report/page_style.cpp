// The style of pages; the colors are those of charts.
#include "lockstep/report/page_style_internal.h"

namespace lockstep {

std::string_view page_style() {
  return R"css(
:root{--back:#f4f6f9;--line:#dfe4ea;--good:#0b8a5a;--bad:#c92a2a;--warn:#b26a00;--run:#1f6fd6;
--good-soft:#e2f5ec;--bad-soft:#fdeaea;--warn-soft:#fff3dc;--run-soft:#e6f0fd;--code:#eef1f5}
@media (prefers-color-scheme:dark){:root{--back:#0d1117;--line:#29313c;--good:#3fd08b;--bad:#ff7b72;--warn:#f0b24a;--run:#5ea6ff;
--good-soft:#12291f;--bad-soft:#331a1d;--warn-soft:#2e2412;--run-soft:#14243a;--code:#212934}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1320px;margin:0 auto;padding:20px 24px 48px;display:flex;flex-direction:column;gap:18px}
main>*{min-width:0}
h1,h2,h3,h4,p,figure,blockquote,ul{margin:0}
header{background:var(--paper);border:1px solid var(--line);border-top:4px solid var(--tone);border-radius:12px;padding:18px 24px 16px}
.good{--tone:var(--good);--tone-soft:var(--good-soft)}.bad{--tone:var(--bad);--tone-soft:var(--bad-soft)}
.paused{--tone:var(--warn);--tone-soft:var(--warn-soft)}.running{--tone:var(--run);--tone-soft:var(--run-soft)}
.brand{font-size:12px;letter-spacing:.09em;text-transform:uppercase;color:var(--soft);font-weight:600}
.headline{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px}
h1{font-size:28px;line-height:1.25;overflow-wrap:anywhere}
.pill{background:var(--tone-soft);color:var(--tone);font-weight:600;border-radius:99px;padding:2px 14px;white-space:nowrap}
.running .pill::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;background:currentColor;margin-right:8px;animation:beat 1.6s infinite}
@keyframes beat{50%{opacity:.25}}
@media (prefers-reduced-motion:reduce){.running .pill::before{animation:none}}
.sub,.stamp,.note,figcaption p,footer,.more,.path{color:var(--soft)}
.sub{font-size:14px}.verdict{font-size:18px;margin-top:10px;max-width:100ch}
.stamp{font-size:12.5px;margin-top:10px}.stamp.stale{color:var(--bad);font-weight:600}
.progress{height:8px;border-radius:99px;background:var(--faint);margin-top:14px;overflow:hidden}
.progress i{display:block;height:100%;background:var(--tone);border-radius:99px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:12px}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:12px;padding:12px 14px;display:flex;flex-direction:column}
.tile .name{font-size:13px;color:var(--soft)}.tile .value{font-size:21px;font-weight:650;line-height:1.3;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile .more{font-size:12.5px;line-height:1.35;white-space:pre-line}
.block>h2,.card>h2{font-size:18px}.block>h2{margin:10px 0 10px 2px}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px;grid-auto-flow:dense}
.grid>figure,.card{background:var(--paper);border:1px solid var(--line);border-radius:12px;padding:16px 18px}
.grid>#loss,.grid>.wide,.grid>#time-line,.grid>figure:only-child{grid-column:1/-1}
h3{font-size:15px}figcaption p,.note{font-size:13px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;margin:4px 0 6px;color:var(--soft)}
.legend b{color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
.key{white-space:nowrap}
.swatch,.box{display:inline-block;margin-right:6px;vertical-align:middle}
.swatch{width:16px;height:3px;border-radius:2px;background:var(--c)}.swatch.faint{opacity:.45}.box{width:11px;height:11px;border-radius:3px}
.stage{position:relative;padding:10px 8px 40px 52px;touch-action:pan-y;cursor:crosshair}
.plot{display:block;overflow:visible}
.curves{overflow:hidden}
.mark{stroke:var(--soft);stroke-dasharray:3 3}.mark.bad{stroke:var(--bad)}
.tip{position:absolute;z-index:2;pointer-events:none;background:var(--paper);border:1px solid var(--line);border-radius:8px;box-shadow:0 4px 16px rgba(0,0,0,.16);padding:6px 10px;font-size:12.5px;white-space:nowrap;font-variant-numeric:tabular-nums;top:6px}
.tip b{float:right;margin-left:14px}
.cross{stroke:var(--soft);stroke-width:1}.zoom{fill:var(--run);opacity:.14}
.reset{position:absolute;top:4px;right:8px;font:inherit;font-size:12.5px;border:1px solid var(--line);background:var(--paper);color:var(--ink);border-radius:7px;padding:1px 10px;cursor:pointer}
.row{display:grid;grid-template-columns:84px minmax(0,1fr) 74px;gap:10px;align-items:center;margin-top:6px}
.row.tight{margin-top:1px;grid-template-columns:84px minmax(0,1fr)}
.rows .scale{margin-top:3px}.row.scale:has(.ends):not(:has(.much)){grid-template-columns:84px minmax(0,1fr)}
.label,.much,.ends{font-size:12.5px;color:var(--soft);font-variant-numeric:tabular-nums;white-space:nowrap}
.much{color:var(--ink)}.ends{display:flex;justify-content:space-between}
.bar{display:block;border-radius:4px;background:var(--grid)}.bar.flat{border-radius:2px}.bar.lane{overflow:visible}
.axis{display:block;overflow:visible}
.p0{fill:var(--p0);background:var(--p0)}.p1{fill:var(--p1);background:var(--p1)}.p2{fill:var(--p2);background:var(--p2)}.p3{fill:var(--p3);background:var(--p3)}
.p4{fill:var(--p4);background:var(--p4)}.p5{fill:var(--p5);background:var(--p5)}.p6{fill:var(--p6);background:var(--p6)}.p7{fill:var(--p7);background:var(--p7)}
.h0{fill:var(--h0);background:var(--h0)}.h1{fill:var(--h1);background:var(--h1)}.h2{fill:var(--h2);background:var(--h2)}.h3{fill:var(--h3);background:var(--h3)}
.h4{fill:var(--h4);background:var(--h4)}.h5{fill:var(--h5);background:var(--h5)}.h6{fill:var(--h6);background:var(--h6)}
.b0{fill:var(--faint);background:var(--faint)}.b1{fill:var(--p0);background:var(--p0)}.b2{fill:var(--p2);background:var(--p2)}.b3{fill:var(--bad);background:var(--bad)}
.box.h0,.box.b0{outline:1px solid var(--line)}
.s0{fill:var(--c1)}.s1{fill:var(--c6)}circle.bad{fill:var(--bad)}circle.warn{fill:var(--warn)}
.card h4{margin-top:14px;font-size:14px}
.failure{border-left:4px solid var(--bad)}.tail{max-height:240px;overflow:auto;display:flex;flex-direction:column-reverse;background:var(--code);border-radius:8px;margin-top:6px}.tail pre{max-height:none;overflow:visible;margin:0;flex:none}.culprit{font-size:16px}
pre,code,blockquote{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{background:var(--code);border-radius:8px;padding:10px 12px;overflow-x:auto;margin:6px 0 0;max-height:420px}
code{background:var(--code);border-radius:5px;padding:1px 6px;overflow-wrap:anywhere}
.path{font-size:12.5px;overflow-wrap:anywhere;margin-top:6px}
details{margin-top:10px}summary{cursor:pointer;color:var(--run);font-size:14px}
.rows>details{margin-top:0}
.scroll{overflow-x:auto;margin-top:6px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--faint);vertical-align:top;overflow-wrap:anywhere}
thead th,.facts th{color:var(--soft);font-weight:500}
.facts{table-layout:fixed}.facts th{width:36%}.facts td:last-child:not(:nth-child(2)){color:var(--soft);text-align:right;padding-right:0}
.numbers td,.numbers th{white-space:nowrap;text-align:right}.numbers th:first-child{text-align:left}
tr.bad td{color:var(--bad);font-weight:600}
.calls td,.calls th{padding:6px 10px;border:1px solid var(--line);min-width:185px;overflow-wrap:break-word}
.calls th{white-space:nowrap}.calls th:first-child{min-width:0;position:sticky;left:0;background:var(--paper)}
.calls span{display:block}.calls small{color:var(--soft)}
.calls .open{background:var(--warn-soft)}.calls .missing,.calls .gone{background:var(--bad-soft)}
.calls .missing span,.calls .gone span{color:var(--bad);font-weight:600}
.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,360px),1fr));gap:12px;margin-top:10px}
.sample{border:1px solid var(--faint);border-radius:10px;padding:10px 14px}
.sample figcaption{color:var(--soft);font-size:12.5px;margin-bottom:4px}
blockquote{white-space:pre-wrap;overflow-wrap:anywhere;max-height:230px;overflow:auto}
.findings ul{padding:0;list-style:none;margin-top:8px;display:grid;gap:8px}
.findings li{border-left:3px solid var(--warn);padding:2px 0 2px 12px}.findings .calm{border-color:var(--good)}
.action{color:var(--soft)}.gain{color:var(--good);font-weight:600;white-space:nowrap}
.tables{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px;align-items:start;grid-template-rows:auto 1fr}.tall{grid-row:span 2}
footer{font-size:12.5px;padding:4px 2px;overflow-wrap:anywhere}
@media (max-width:900px){.grid,.tables{grid-template-columns:minmax(0,1fr)}}
@media (max-width:560px){main{padding:10px 10px 32px;gap:12px}header,.card,.grid>figure{padding:13px 13px}
h1{font-size:22px}.verdict{font-size:16px}.tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.tile{padding:10px 12px}.tile .value{font-size:20px}
.tx.even{display:none}.row,.row.tight,.row.scale{grid-template-columns:76px minmax(0,1fr) 62px;gap:6px}.row.tight,.row.scale:has(.ends):not(:has(.much)){grid-template-columns:76px minmax(0,1fr)}
.label,.much{font-size:11.5px;overflow:hidden;text-overflow:ellipsis}.stage{padding-left:46px;padding-right:4px}
.calls td,.calls th{min-width:128px;padding:5px 6px;font-size:12.5px;overflow-wrap:anywhere}
.stacked thead{display:none}.stacked tr{display:grid;grid-template-columns:1fr 1fr;gap:0 18px;padding:8px 0;border-bottom:1px solid var(--line)}
.stacked th,.stacked td{border:0;padding:2px 0}.stacked td[data-name]{display:flex;justify-content:space-between}.stacked td::before{content:attr(data-name);color:var(--soft)}}
@media print{:root{color-scheme:light;--back:#fff}body{font-size:12px;-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{padding:0;max-width:none}.grid>figure,.card,.tile,header{break-inside:avoid;box-shadow:none}.stamp .live,.reset,footer{display:none}}
)css";
}

std::string_view page_script() {
  return R"js(
(function(){"use strict";
function digits(v,n){if(v===0)return"0";var b=Math.floor(Math.log10(Math.abs(v)))+1;if(b<-3||b>12)return v.toExponential(2);
var t=v.toFixed(Math.min(20,Math.max(0,n-b)));return t.indexOf(".")<0?t:t.replace(/\.?0+$/,"")}
function scaled(v,p,small,n){for(var i=0;i<p.length;i++)if(Math.abs(v)>=.9995*p[i][0])return digits(v/p[i][0],n)+p[i][1];return digits(v,n)+small}
var SI=[[1e12,"T"],[1e9,"G"],[1e6,"M"],[1e3,"k"]],BIN=[[Math.pow(2,40)," TiB"],[Math.pow(2,30)," GiB"],[1048576," MiB"],[1024," KiB"]],TIME=[[1," s"],[1e-3," ms"],[1e-6," µs"],[1e-9," ns"]];
function percent(v){v*=100;return v.toFixed(Math.abs(v)>=.995?1:2).replace(/\.?0+$/,"")+" %"}
function text(v,u,n){n=n||4;switch(u){case"count":return scaled(v,SI,"",n);case"fraction":return percent(v);case"seconds":return scaled(v,TIME," s",n);
case"milliseconds":return scaled(v/1e3,TIME," s",n);case"bytes":return scaled(v,BIN," B",3);case"rate":return scaled(v,[[1e9," GB/s"],[1e6," MB/s"],[1e3," kB/s"]]," B/s",3);case"count_rate":return scaled(v,SI,"",n)+"/s";
case"duration":return v<60?digits(v,3)+" s":v<3600?Math.floor(v/60)+" min "+Math.round(v%60)+" s":Math.floor(v/3600)+" h "+Math.round(v%3600/60)+" min";default:return digits(v,Math.abs(v)<.1?3:n+1)}}
function ticks(lo,hi,n,u){var s=(hi-lo)/n,d;if(u==="bytes")s=Math.pow(2,Math.ceil(Math.log2(s)));else{d=Math.pow(10,Math.floor(Math.log10(s)));s=[1,2,5,10].map(function(f){return f*d}).find(function(x){return x>=s*.999})}
if(u==="count")s=Math.max(1,s);var a=[];for(var i=Math.ceil(lo/s-1e-9);i*s<=hi+1e-9*s;i++)a.push(i*s);return{at:a,step:s}}
function label(v,s,u){if(Math.abs(v)<s*1e-9)v=0;if(v===0)return"0";if(u==="fraction"||u==="duration")return text(v,u,3);var n=1,e=Math.floor(Math.log10(Math.abs(v)));
for(;n<7;n++){var q=Math.pow(10,e-n+1);if(Math.abs(Math.round(v/q)*q-v)<.01*s)break}return u==="plain"?digits(v,n):text(v,u,n)}
function el(n,a,p){var e=document.createElementNS("http://www.w3.org/2000/svg",n);for(var k in a)e.setAttribute(k,a[k]);if(p)p.appendChild(e);return e}
var charts=[];
function Chart(f){var c=this,d=JSON.parse(f.querySelector('script[type="application/json"]').textContent);c.d=d;c.h=+f.dataset.h;c.stage=f.querySelector(".stage");c.frame=f.querySelector(".plot");
c.curves=f.querySelector(".curves");c.still={t:f.querySelector(".ticks").innerHTML,c:c.curves.innerHTML,p:f.querySelector(".points").innerHTML,m:f.querySelector(".marks").style.display};c.f=f;
var lo=Infinity,hi=-Infinity;d.series.forEach(function(s){s.x.forEach(function(x,i){if(s.y[i]!==null){lo=Math.min(lo,x);hi=Math.max(hi,x)}})});if(!(hi>lo)){hi=lo+1}c.full=[lo,hi];c.view=c.full;
c.over=el("g",{},c.frame);
c.stage.addEventListener("pointermove",function(e){c.move(e)});c.stage.addEventListener("pointerleave",function(){charts.forEach(function(o){o.hide()})});
c.stage.addEventListener("pointerdown",function(e){if(e.pointerType==="mouse"&&e.button===0){c.from=c.at(e);e.preventDefault()}});
window.addEventListener("pointerup",function(e){if(c.from===undefined)return;var a=c.from,b=c.at(e);c.from=undefined;c.clear();if(Math.abs(a-b)>.01)zoom(c.value(Math.min(a,b)),c.value(Math.max(a,b)),d.xt)});
c.stage.addEventListener("dblclick",function(){zoom(null,null,d.xt)})}
Chart.prototype={at:function(e){var r=this.curves.getBoundingClientRect();return Math.min(1,Math.max(0,(e.clientX-r.left)/r.width))},
value:function(p){return this.view[0]+p*(this.view[1]-this.view[0])},
clear:function(){while(this.over.firstChild)this.over.removeChild(this.over.firstChild)},
hide:function(){if(this.from===undefined)this.clear();if(this.tip){this.tip.remove();this.tip=null}},
near:function(x){var best=null;this.d.series.forEach(function(s){var l=0,h=s.x.length-1;while(h-l>1){var m=l+h>>1;if(s.x[m]<x)l=m;else h=m}
[l,h].forEach(function(i){if(s.x[i]!==undefined&&s.y[i]!==null&&(best===null||Math.abs(s.x[i]-x)<Math.abs(best-x)))best=s.x[i]})});return best},
move:function(e){var p=this.at(e),c=this;if(this.from!==undefined){this.clear();var a=Math.min(this.from,p),b=Math.max(this.from,p);el("rect",{"class":"zoom",x:100*a+"%",width:100*(b-a)+"%",height:this.h},this.over);return}
var x=this.near(this.value(p));if(x===null)return;charts.forEach(function(o){if(o.d.xt===c.d.xt)o.show(x,o===c)})},
show:function(x,own){this.hide();var w=(x-this.view[0])/(this.view[1]-this.view[0]);if(w<0||w>1)return;el("line",{"class":"cross",x1:100*w+"%",x2:100*w+"%",y2:this.h},this.over);if(!own)return;
var t=document.createElement("div"),d=this.d;t.className="tip";var h=document.createElement("div");h.textContent=d.xt+" "+(d.x==="count"?Math.round(x).toLocaleString("en"):text(x,d.x));t.appendChild(h);
d.series.forEach(function(s){var i=-1,b=Infinity;s.x.forEach(function(v,j){if(s.y[j]!==null&&Math.abs(v-x)<b){b=Math.abs(v-x);i=j}});if(i<0||(s.p&&b>0))return;
var r=document.createElement("div"),k=document.createElement("i"),n=document.createElement("b");k.className="swatch c"+s.c;r.appendChild(k);r.appendChild(document.createTextNode(s.n));n.textContent=text(s.y[i],d.y)+(s.lo&&s.lo[i]<s.hi[i]?" ("+text(s.lo[i],d.y)+" to "+text(s.hi[i],d.y)+")":"");r.appendChild(n);t.appendChild(r)});
this.stage.appendChild(t);this.tip=t;var g=this.stage.getBoundingClientRect(),q=this.curves.getBoundingClientRect(),left=q.left-g.left+w*q.width;t.style.left=Math.max(0,left+14+t.offsetWidth>g.width?left-14-t.offsetWidth:left+14)+"px"},
draw:function(lo,hi){var c=this,d=this.d,f=this.f;this.hide();if(this.reset){this.reset.remove();this.reset=null}
if(lo===null){this.view=this.full;f.querySelector(".ticks").innerHTML=this.still.t;this.curves.innerHTML=this.still.c;f.querySelector(".points").innerHTML=this.still.p;f.querySelector(".marks").style.display=this.still.m;return}
this.view=[lo,hi];f.querySelector(".marks").style.display="none";var yl=Infinity,yh=-Infinity;
d.series.forEach(function(s){s.x.forEach(function(x,i){if(x<lo||x>hi||s.y[i]===null)return;yl=Math.min(yl,s.lo?s.lo[i]:s.y[i]);yh=Math.max(yh,s.hi?s.hi[i]:s.y[i])})});
if(!isFinite(yl)){yl=0;yh=1}if(d.zero)yl=0;if(yh<=yl){yh=yl+Math.max(1e-9,Math.abs(yl)*.1)}
var m=.05*(yh-yl),log=d.log&&yl>0;if(log){var g=Math.pow(yh/yl,.05);yl/=g;yh*=g}else{if(!d.zero)yl-=m;yh+=m}
function Y(v){return log?Math.log(v/yl)/Math.log(yh/yl):(v-yl)/(yh-yl)}function X(v){return(v-lo)/(hi-lo)}
var T=f.querySelector(".ticks");T.innerHTML="";var ty=log?{at:[yl*Math.pow(yh/yl,.1),Math.sqrt(yl*yh),yl*Math.pow(yh/yl,.9)],step:yl}:ticks(yl,yh,Math.max(2,Math.floor(c.h/44)),d.y);
ty.at.forEach(function(v){var y=c.h*(1-Y(v));el("line",{"class":"rule",x2:"100%",y1:y,y2:y},T);el("text",{"class":"ty",x:-8,y:y+4},T).textContent=log?text(v,d.y,2):label(v,ty.step,d.y)});
var tx=ticks(lo,hi,6,d.x);tx.at.forEach(function(v,i){var x=100*X(v)+"%";el("line",{"class":"notch",x1:x,x2:x,y1:c.h,y2:c.h+4},T);el("text",{"class":"tx"+(i%2?" even":""),x:x,y:c.h+17},T).textContent=label(v,tx.step,d.x)});
var P=f.querySelector(".points");P.innerHTML="";this.curves.innerHTML="";
var old=document.createElementNS("http://www.w3.org/2000/svg","g");old.innerHTML=this.still.c;var lines=old.querySelectorAll(".line");
d.series.forEach(function(s,k){var up="",down="",line="",open=false;s.x.forEach(function(x,i){if(s.y[i]===null){open=false;return}var px=(1000*X(x)).toFixed(1);line+=(open?"L":"M")+px+" "+(1000-1000*Y(s.y[i])).toFixed(1);open=true;
if(s.lo){up+=(up?"L":"M")+px+" "+(1000-1000*Y(s.hi[i])).toFixed(1);down="L"+px+" "+(1000-1000*Y(s.lo[i])).toFixed(1)+down}
if(s.p&&x>=lo&&x<=hi)el("circle",{"class":"c"+s.c,cx:100*X(x)+"%",cy:c.h*(1-Y(s.y[i])),r:3.5},P)});
if(up)el("path",{"class":"band c"+s.c,d:up+down+"Z"},c.curves);el("path",{"class":lines[k]?lines[k].getAttribute("class"):"line c"+s.c,d:line},c.curves)});
var b=document.createElement("button");b.className="reset";b.textContent="Whole run";b.addEventListener("click",function(){zoom(null,null,d.xt)});this.stage.appendChild(b);this.reset=b}};
function zoom(lo,hi,xt){charts.forEach(function(c){if(c.d.xt===xt)c.draw(lo,hi)});keep.zoom=lo===null?null:[lo,hi,xt];save()}
var keep={},stamp=document.querySelector(".stamp"),store="lockstep"+location.pathname;
function save(){try{keep.y=window.scrollY;keep.open=[].map.call(document.querySelectorAll("details"),function(d){return d.open});sessionStorage.setItem(store,JSON.stringify(keep))}catch(e){}}
document.querySelectorAll("figure.chart").forEach(function(f){charts.push(new Chart(f))});
var reload=stamp?+stamp.dataset.reload:0;
try{var was=JSON.parse(sessionStorage.getItem(store)||"{}");if(reload||was.live){(was.open||[]).forEach(function(o,i){var d=document.querySelectorAll("details")[i];if(d)d.open=o});if(was.zoom)zoom(was.zoom[0],was.zoom[1],was.zoom[2]);if(was.y)window.scrollTo(0,was.y)}}catch(e){}
keep.live=reload>0;if(reload)history.scrollRestoration="manual";
if(reload){var age=Date.now()/1e3-stamp.dataset.written;if(age>Math.max(120,6*reload)){stamp.classList.add("stale");stamp.parentNode.className="bad";document.querySelector(".pill").textContent="No news";stamp.textContent="Not written for "+text(age,"duration")+": the run was probably killed. lockstep report writes this page again."}
setTimeout(function(){save();location.reload()},1e3*reload)}
window.addEventListener("pagehide",save)})();
)js";
}

}  // namespace lockstep
