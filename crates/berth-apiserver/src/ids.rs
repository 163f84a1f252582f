//! UIDs and the random suffixes of generated names.
//!
//! With a seed the sequence is the same in every run, so that a simulation is reproducible.

use std::sync::{Mutex, PoisonError};

/// The letters of generated names: no vowels and no look-alikes, so that they form no words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// Generates identifiers, randomly or from a seed.
#[derive(Debug)]
pub(crate) struct Identifiers {
    seeded: Option<Mutex<u64>>,
}

impl Identifiers {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self {
            seeded: seed.map(Mutex::new),
        }
    }

    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        match &self.seeded {
            Some(state) => {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                for half in bytes.chunks_mut(8) {
                    half.copy_from_slice(&split_mix(&mut state).to_le_bytes());
                }
            }
            None => {
                if let Err(error) = getrandom::fill(&mut bytes) {
                    // Without the system's random numbers UIDs would repeat; time and address are the next best.
                    tracing::error!(%error, "the system provides no random numbers");
                    let nanoseconds = jiff::Timestamp::now().as_nanosecond();
                    bytes = (nanoseconds as u128)
                        .wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
                        .to_le_bytes();
                }
            }
        }
        bytes
    }

    pub(crate) fn uid(&self) -> String {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid().to_string()
    }

    pub(crate) fn suffix(&self) -> String {
        let letter = |byte: u8| char::from(SUFFIX_LETTERS[usize::from(byte) % SUFFIX_LETTERS.len()]);
        self.bytes().into_iter().take(SUFFIX_LENGTH).map(letter).collect()
    }
}

/// A bearer token: 128 random bits, never from a seed.
///
/// # Errors
/// If the system provides no random numbers.
pub fn token() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_the_system_does_not() {
        let (one, two) = (Identifiers::new(Some(7)), Identifiers::new(Some(7)));
        assert_eq!((one.uid(), one.suffix()), (two.uid(), two.suffix()));
        let system = Identifiers::new(None);
        assert_ne!(system.uid(), system.uid());
        assert_eq!(system.suffix().len(), 5);
    }
}
