"""One request at a time, with an accept queue that is soon full: narrow_app.py PORT"""

import random
import socket
import sys
import time

MEDIAN_S, SPREAD = 0.02, 0.6

with socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1) as listening:
    while True:
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(5.0)
            try:
                if not connection.recv(4096):
                    continue
                time.sleep(MEDIAN_S * random.lognormvariate(0, SPREAD))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            except OSError:
                pass
