// A service in Node: it waits as if it worked, and answers. node node_app.js PORT
const http = require("http");
const median_ms = 20, spread = 0.6;
const normal = () =>
  Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const server = http.createServer((request, response) => {
  request.resume();
  setTimeout(() => {
    response.setHeader("Content-Type", "application/json");
    response.end('{"label": 7, "score": 0.93}');
  }, median_ms * Math.exp(spread * normal()));
});
server.keepAliveTimeout = 120000;
server.listen(Number(process.argv[2]), "127.0.0.1", 4096);
