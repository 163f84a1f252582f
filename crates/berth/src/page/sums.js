// What there is in the cluster, in each zone and in each rack, and what is requested of it.

import { placeOf } from "./model.js";

const empty = () => ({ nodes: 0, ready: 0, open: 0, pods: 0, cpu: [0, 0], memory: [0, 0], volumes: 0, asked: 0, used: 0, free: 0, freeVolumes: 0, pools: 0, left: 0 });

const addNode = (sum, row) => {
  sum.nodes++;
  if (row.ready) sum.ready++;
  if (row.ready && !row.cordoned) sum.open++;
  sum.pods += row.pods.requested;
  for (const what of ["cpu", "memory"]) {
    sum[what][0] += row[what].requested;
    sum[what][1] += row[what].allocatable;
  }
};

const addVolume = (sum, row, claim, asked) => {
  sum.volumes++;
  sum.asked += asked;
  if (claim) sum.used += row.capacity;
  else {
    sum.free += row.capacity;
    sum.freeVolumes++;
  }
};

const addPool = (sum, row) => {
  sum.pools++;
  sum.left += row.capacity ?? 0;
};

// Zone and rack of what is at a place; nothing if it belongs to no single zone.
const zoneAndRack = (model, at) => {
  const place = placeOf(at);
  if (place.startsWith("node ")) {
    const node = model.nodes.get(place.slice(5));
    return node && [node.zone, node.rack];
  }
  if (place.startsWith("rack ")) return [at.zones[0], at.racks[0]];
  return place.startsWith("zone ") ? [at.zones[0]] : undefined;
};

// The sums of everything, and of zones and racks by name.
export const sumUp = (model) => {
  const total = empty();
  const zones = new Map();
  const places = (found) => {
    if (!found) return [total];
    const [zone, rack] = found;
    if (!zones.has(zone)) zones.set(zone, { sum: empty(), racks: new Map() });
    const { sum, racks } = zones.get(zone);
    if (rack === undefined) return [total, sum];
    if (!racks.has(rack)) racks.set(rack, empty());
    return [total, sum, racks.get(rack)];
  };
  for (const row of model.nodes.values()) for (const sum of places([row.zone, row.rack])) addNode(sum, row);
  for (const [name, row] of model.volumes) {
    const claim = model.claimFor(name);
    const asked = model.askedOf(name);
    for (const sum of places(zoneAndRack(model, row.place))) addVolume(sum, row, claim, asked);
  }
  for (const row of model.pools.values()) for (const sum of places(zoneAndRack(model, row.place))) addPool(sum, row);
  return { total, zones };
};
