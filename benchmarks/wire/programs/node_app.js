// A service in Node: it waits as if it worked, and answers; at /compute it works instead.
// node node_app.js PORT
const http = require("http");
const median_ms = 20, spread = 0.6;
const normal = () =>
  Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const steps = 1200000; // about 12 ms of CPU time
const compute = () => {
  let sum = 0;
  for (let i = 0; i < steps; i++) sum += Math.sin(i);
  return sum;
};
const server = http.createServer((request, response) => {
  request.resume();
  const computes = request.url === "/compute";
  setTimeout(() => {
    response.setHeader("Content-Type", "application/json");
    response.end(JSON.stringify({ label: 7, score: computes ? compute() : 0.93 }));
  }, computes ? 0 : median_ms * Math.exp(spread * normal()));
});
server.keepAliveTimeout = 120000;
server.listen(Number(process.argv[2]), "127.0.0.1", 4096);
