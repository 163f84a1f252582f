//! A table whose entries have small dense IDs. A slot is reused after its entry is gone, but an ID is not, so that a
//! stale ID finds nothing instead of another entry.

use crate::trace::{Marks, Trace};

/// The slot of an entry, and how many entries used it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SlotId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl SlotId {
    /// Sorts before all other IDs.
    pub(crate) const LEAST: Self = Self {
        place: 0,
        generation: 0,
    };
}

#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Option<T>>,
    /// By slot. A slot would have to be reused four billion times for an ID to repeat.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Trace> Trace for Slots<T> {
    fn trace(&self, marks: &mut Marks) {
        self.entries.trace(marks);
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> SlotId {
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(slot) => *slot = Some(value),
            None => {
                self.entries.push(Some(value));
                self.generations.push(0);
            }
        }
        let generation = self.generations[place as usize];
        SlotId { place, generation }
    }

    pub(crate) fn remove(&mut self, id: SlotId) -> Option<T> {
        let value = self.get_slot(id)?.take()?;
        let generation = &mut self.generations[id.place as usize];
        *generation = generation.wrapping_add(1);
        self.free.push(id.place);
        Some(value)
    }

    fn get_slot(&mut self, id: SlotId) -> Option<&mut Option<T>> {
        let generation = self.generations.get(id.place as usize)?;
        let slot = self.entries.get_mut(id.place as usize)?;
        (*generation == id.generation).then_some(slot)
    }

    pub(crate) fn get(&self, id: SlotId) -> Option<&T> {
        let generation = self.generations.get(id.place as usize)?;
        let value = self.entries.get(id.place as usize)?.as_ref();
        value.filter(|_| *generation == id.generation)
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> Option<&mut T> {
        self.get_slot(id)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_an_id_is_not() {
        let mut slots = Slots::default();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(second.place, first.place);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&'b')));
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.len(), 1);
    }
}
