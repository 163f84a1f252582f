//! A table whose entries have small dense ids that are used again.

#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let id = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(id as usize) {
            Some(slot) => *slot = Some(value),
            None => self.entries.push(Some(value)),
        }
        id
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.entries.get_mut(id as usize)?.take();
        if value.is_some() {
            self.free.push(id);
        }
        value
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.entries.get(id as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.entries.get_mut(id as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
