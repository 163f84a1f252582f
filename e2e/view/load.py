"""The cluster of e2e/view/load, and what is measured on it.

Usage: load.py objects NODES PODS                                     prints the cluster
       load.py measure WORK PAGE PID NODES RATE CLIENTS BROWSERS SECONDS      prints what was measured
"""
import base64
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse

ZONES = "abcde"
WRITERS = 4
# How many pods of a writer are there at a time.
LIFE = 50


def node_name(number):
    return f"node-{ZONES[number % len(ZONES)]}{number // len(ZONES)}"


def pod(name, node, claim=None):
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0},
        "status": {"phase": "Running"},
    }


def volume(name, node, size, claim=None):
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim:
        spec["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def claim(name, volume):
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeName": volume, "resources": {"requests": {"storage": "80Gi"}}}
    annotations = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}


def pool(node):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"pool-{node}", "namespace": "default"},
        "storageClassName": "node-csi",
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": node}},
        "capacity": "500Gi",
    }


def storage(nodes):
    """For each node two local volumes, one of them bound to the claim of a pod, and a pool."""
    classes = [("local", "kubernetes.io/no-provisioner"), ("node-csi", "csi.example.com")]
    items = [{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": driver, "volumeBindingMode": "WaitForFirstConsumer"} for name, driver in classes]
    for number in range(nodes):
        node = node_name(number)
        items += [volume(f"{node}-disk1", node, "100Gi", f"data-{number}"), volume(f"{node}-disk2", node, "200Gi")]
        items += [claim(f"data-{number}", f"{node}-disk1"), pool(node)]
    return items


def objects(nodes, pods):
    items = storage(nodes)
    for number in range(nodes):
        zone = f"zone-{ZONES[number % len(ZONES)]}"
        labels = {"kubernetes.io/hostname": node_name(number), "topology.kubernetes.io/zone": zone, "topology.kubernetes.io/rack": f"{zone}-r{number // len(ZONES) % 20}"}
        status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
        items.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number), "labels": labels}, "status": status})
    # The first pod of each node uses its claim.
    items += [pod(f"web-{number}", node_name(number % nodes), f"data-{number}" if number < nodes else None) for number in range(pods)]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout)


class Client(threading.Thread):
    """Follows the events of a page and counts them."""

    def __init__(self, page):
        super().__init__(daemon=True)
        parts = urllib.parse.urlsplit(page)
        self.connection = http.client.HTTPConnection(parts.netloc, timeout=120)
        self.connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {parts.fragment}"})
        self.answer = self.connection.getresponse()
        self.bytes = self.updates = self.whole = self.first = 0
        self.complete = False

    def run(self):
        event = ""
        try:
            for line in self.answer:
                self.bytes += len(line)
                if line.startswith(b"event: "):
                    event = line[7:].strip().decode()
                    self.updates += event == "update"
                    self.whole += event == "everything"
                elif line.startswith(b"data: "):
                    if event == "everything":
                        self.first = len(line)
                    # Both say whether all kinds are known. Parsing all rows would measure this client.
                    if b'"complete":true' in line[:200]:
                        self.complete = True
        except OSError:
            pass


class Writers:
    """Makes pods come and go, so many changes a second."""

    def __init__(self, kubeconfig, rate, nodes):
        text = open(kubeconfig).read()
        find = lambda key: re.search(rf"{key}: \"?([^\s\"]+)", text).group(1)
        self.server = urllib.parse.urlsplit(find("server")).netloc
        self.token = find("token")
        self.context = ssl.create_default_context(cadata=base64.b64decode(find("certificate-authority-data")).decode())
        self.rate, self.nodes = rate, nodes
        self.made = 0
        self.problem = ""
        self.lock = threading.Lock()
        self.ends = threading.Event()

    def start(self):
        self.threads = [threading.Thread(target=self.write, args=(number,), daemon=True) for number in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def write(self, number):
        connection = http.client.HTTPSConnection(self.server, context=self.context, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        path = "/api/v1/namespaces/default/pods"

        def send(method, path, body=None):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            told = answer.read().decode()
            if answer.status >= 300:
                self.ends.set()
                self.problem = f"{method} {path}: {answer.status} {told}"

        begin, done = time.monotonic(), 0
        while not self.ends.is_set():
            # One comes, then one goes that came some seconds ago: nobody misses it because both happen at once.
            name = f"load-{number}-{done // 2}"
            if done % 2 == 0:
                send("POST", path, json.dumps(pod(name, node_name(done * 7 % self.nodes))))
            else:
                gone = done // 2 - LIFE
                send("DELETE", f"{path}/{f'load-{number}-{gone}' if gone >= 0 else f'web-{number * LIFE - gone - 1}'}?gracePeriodSeconds=0")
            done += 1
            with self.lock:
                self.made += 1
            self.ends.wait(max(0.0, begin + done * WRITERS / self.rate - time.monotonic()))


def usage(pid):
    """Processor time in seconds and memory in MiB."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    memory = int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024
    return (int(fields[11]) + int(fields[12])) / ticks, memory


def measure(work, page, pid, nodes, rate, clients, browsers, seconds):
    begin = time.monotonic()
    looking = [Client(page) for _ in range(clients)]
    for client in looking:
        client.start()
    while not all(client.complete for client in looking):
        time.sleep(0.1)
    print(f"all rows are known after {time.monotonic() - begin:.1f} s")
    late = Client(page)
    late.start()
    while not late.first:
        time.sleep(0.1)
    print(f"{late.first / 2**20:.1f} MiB for each page that is opened")
    looking = looking[1:] + [late]
    print(f"{usage(pid)[1]:.0f} MiB of memory of berth view, once all rows are known")
    browser = subprocess.Popen(["node", os.path.join(work, "load.mjs"), page, str(browsers), str(seconds)], stdout=subprocess.PIPE, text=True)
    browser.stdout.readline()
    writers = Writers(os.path.join(work, "kubeconfig"), rate, nodes)
    before, updates, (cpu_before, _) = [client.bytes for client in looking], [client.updates for client in looking], usage(pid)
    whole = [client.whole for client in looking]
    begin = time.monotonic()
    writers.start()
    time.sleep(seconds)
    writers.ends.set()
    for thread in writers.threads:
        thread.join()
    # What was gathered last is told some moments later.
    time.sleep(1)
    passed = time.monotonic() - begin
    cpu, memory = usage(pid)
    made = writers.made
    sent = [client.bytes - earlier for client, earlier in zip(looking, before)]
    frames = [client.updates - earlier for client, earlier in zip(looking, updates)]
    anew = sum(client.whole - earlier for client, earlier in zip(looking, whole))
    print(f"{made} changes in {passed:.0f} s ({made / passed:.0f} a second), {clients} clients of the event stream")
    print(f"{sum(sent) / clients / made:.0f} bytes for each change and client, {frames[0] / passed:.1f} updates a second, {anew} times everything anew")
    print(f"berth view: {(cpu - cpu_before) / passed * 100:.0f}% of a processor, {memory:.0f} MiB of memory")
    print(browser.stdout.read().strip())
    browser.wait()
    if writers.problem or min(frames) == 0:
        sys.exit(f"FAILED {writers.problem or 'a client has heard of no change'}")


if sys.argv[1] == "objects":
    objects(int(sys.argv[2]), int(sys.argv[3]))
else:
    measure(sys.argv[2], sys.argv[3], *(int(number) for number in sys.argv[4:10]))
