// The rows of the cluster, and which of them belong together. The server sends rows that changed; this applies them.

export const TABLES = ["nodes", "pods", "claims", "volumes", "pools", "classes", "workloads"];

// Where a volume or pool is drawn.
export const placeOf = ({ nodes = [], racks = [], zones = [] }) => {
  if (nodes.length === 1) return `node ${nodes[0]}`;
  if (nodes.length === 0 && racks.length === 1 && zones.length === 1) return `rack ${zones[0]}/${racks[0]}`;
  if (nodes.length === 0 && zones.length === 1) return `zone ${zones[0]}`;
  return "shared";
};

// Whether a node can reach what is at a place, as far as the place says it plainly.
export const reaches = ({ nodes = [], racks = [], zones = [] }, name, row) => {
  const holds = (names, own) => names.length === 0 || names.includes(own);
  return holds(nodes, name) && holds(racks, row.rack) && holds(zones, row.zone);
};

const isOver = (pod) => pod.phase === "Succeeded" || pod.phase === "Failed";

export class Model {
  constructor(state) {
    for (const table of TABLES) this[table] = new Map();
    this.podsOf = new Map();
    this.usersOf = new Map();
    this.at = new Map();
    this.claimOf = new Map();
    // Claims that have no volume yet, and volumes that are reserved for a claim.
    this.open = new Set();
    this.reservedFor = new Map();
    this.waiting = new Set();
    // Pods that have a node and do not run there.
    this.idle = new Set();
    this.placed = 0;
    this.bound = 0;
    // What changed since somebody looked: nodes, places of volumes, and whether nodes came, went or moved.
    this.changed = { nodes: new Set(), places: new Set(), layout: true };
    if (state) for (const table of TABLES) for (const name of Object.keys(state[table])) this.set(table, name, state[table][name]);
  }

  apply(update) {
    for (const table of Object.keys(update)) for (const name of Object.keys(update[table])) this.set(table, name, update[table][name]);
  }

  // What changed since this was last called.
  take() {
    const changed = this.changed;
    this.changed = { nodes: new Set(), places: new Set(), layout: false };
    return changed;
  }

  set(table, name, row) {
    const before = this[table].get(name);
    if (row) this[table].set(name, row);
    else this[table].delete(name);
    if (table === "nodes") this.setNode(name, before, row);
    if (table === "pods") this.setPod(name, before, row);
    if (table === "claims") this.setClaim(name, before, row);
    if (table === "volumes" || table === "pools") this.setPlaced(table, name, before, row);
  }

  setNode(name, before, row) {
    this.changed.nodes.add(name);
    if (!before || !row || before.zone !== row.zone || before.rack !== row.rack) this.changed.layout = true;
  }

  setPod(name, before, row) {
    if (before) {
      this.part(this.podsOf, before.node, name);
      for (const claim of before.claims ?? []) this.part(this.usersOf, claim, name);
      this.changed.nodes.add(before.node);
      if (before.node) this.placed--;
    }
    this.waiting.delete(name);
    this.idle.delete(name);
    if (!row) return;
    if (row.node) this.placed++;
    this.join(this.podsOf, row.node, name);
    for (const claim of row.claims ?? []) this.join(this.usersOf, claim, name);
    this.changed.nodes.add(row.node);
    if (isOver(row) || row.deleting) return;
    if (row.node === "") this.waiting.add(name);
    else if (row.phase !== "Running") this.idle.add(name);
  }

  setClaim(name, before, row) {
    for (const volume of [before?.volume, row?.volume]) {
      const place = volume && this.volumes.get(volume);
      if (place) this.changed.places.add(placeOf(place.place));
    }
    if (before?.volume) this.claimOf.delete(before.volume);
    if (row?.volume) this.claimOf.set(row.volume, name);
    this.bound += (row?.phase === "Bound" ? 1 : 0) - (before?.phase === "Bound" ? 1 : 0);
    if (row && row.phase !== "Bound") this.open.add(name);
    else this.open.delete(name);
  }

  setPlaced(table, name, before, row) {
    for (const one of [before, row]) {
      if (!one) continue;
      const place = placeOf(one.place);
      this.part(this.at, place, `${table} ${name}`);
      if (one === row) this.join(this.at, place, `${table} ${name}`);
      this.changed.places.add(place);
    }
    if (before?.claim && this.reservedFor.get(before.claim) === name) this.reservedFor.delete(before.claim);
    if (row?.claim) this.reservedFor.set(row.claim, name);
  }

  join(index, key, name) {
    if (!index.has(key)) index.set(key, new Set());
    index.get(key).add(name);
  }

  part(index, key, name) {
    const names = index.get(key);
    names?.delete(name);
    if (names?.size === 0) index.delete(key);
  }

  // The names of the pods of a node, in order.
  podsOn(node) {
    return [...(this.podsOf.get(node) ?? [])].filter((name) => !isOver(this.pods.get(name))).sort();
  }

  // How many pods have a node and do not run: they have not started, or their node is not ready.
  notRunning() {
    const stuck = (node) => this.podsOn(node).filter((name) => !this.idle.has(name)).length;
    return [...this.nodes].reduce((sum, [name, row]) => sum + (row.ready ? 0 : stuck(name)), this.idle.size);
  }

  // The volumes or pools of a place, in order.
  placedAt(place, table) {
    const names = [...(this.at.get(place) ?? [])].filter((name) => name.startsWith(`${table} `));
    return names.map((name) => name.slice(table.length + 1)).sort();
  }

  // The claim of a volume: the one that names it, else the one that it is reserved for.
  claimFor(volume) {
    return this.claimOf.get(volume) ?? (this.volumes.get(volume)?.claim || undefined);
  }

  // What the claim of a volume requests of it.
  askedOf(volume) {
    const claim = this.claims.get(this.claimFor(volume));
    return claim?.volume === volume ? claim.requested : 0;
  }

  // The size of the volumes that are made from a pool: those of its class at its place.
  usedOf(pool) {
    const { class: own, place } = this.pools.get(pool);
    const beside = this.placedAt(placeOf(place), "volumes").map((name) => this.volumes.get(name));
    return beside.reduce((sum, row) => sum + (row.class === own ? row.capacity : 0), 0);
  }

  // Pods, claims and volumes that hang together with one of them.
  tied(kind, name) {
    const claims = new Set();
    if (kind === "pods") for (const claim of this.pods.get(name)?.claims ?? []) claims.add(claim);
    if (kind === "claims") claims.add(name);
    if (kind === "volumes" && this.claimFor(name)) claims.add(this.claimFor(name));
    const pods = new Set(kind === "pods" ? [name] : []);
    const volumes = new Set(kind === "volumes" ? [name] : []);
    for (const claim of claims) {
      for (const pod of this.usersOf.get(claim) ?? []) pods.add(pod);
      const volume = this.claims.get(claim)?.volume;
      if (volume) volumes.add(volume);
    }
    return { pods, claims, volumes };
  }
}
