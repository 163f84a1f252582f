//! The wire format: a sequence of numbered fields of four types.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A truncated body, or an unknown field type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// One field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) payload: Payload<'a>,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// A text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Payload::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn varint(&self) -> Option<u64> {
        match self {
            Payload::Varint(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn double(&self) -> Option<f64> {
        match self {
            Payload::Fixed64(bits) => Some(f64::from_bits(*bits)),
            Payload::Fixed32(bits) => Some(f64::from(f32::from_bits(*bits))),
            _ => None,
        }
    }
}

/// The fields of a message, up to the first invalid one.
pub(super) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Result<Field<'_>, Broken>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = field(&mut bytes);
        if field.is_err() {
            bytes = &[];
        }
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Result<Field<'a>, Broken> {
    let tag = varint(bytes)?;
    let number = u32::try_from(tag >> 3).map_err(|_| Broken)?;
    let payload = match tag & 7 {
        0 => Payload::Varint(varint(bytes)?),
        1 => Payload::Fixed64(u64::from_le_bytes(fixed(bytes)?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| Broken)?;
            Payload::Bytes(take(bytes, length)?)
        }
        5 => Payload::Fixed32(u32::from_le_bytes(fixed(bytes)?)),
        _ => return Err(Broken),
    };
    Ok(Field { number, payload })
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Broken> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Broken)?;
    *bytes = rest;
    Ok(taken)
}

fn fixed<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Broken> {
    take(bytes, N)?.try_into().map_err(|_| Broken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Broken> {
    let mut number = 0_u64;
    // Ten groups of seven bits hold any 64-bit number.
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Broken)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Broken)
}

/// Packed numbers in one field.
pub(super) fn varints(mut bytes: &[u8]) -> impl Iterator<Item = Result<u64, Broken>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let number = varint(&mut bytes);
        if number.is_err() {
            bytes = &[];
        }
        Some(number)
    })
}

/// Bytes as encoded in JSON.
pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_base64() {
        let check = |bytes: &str, expect: &str| assert_eq!(base64(bytes.as_bytes()), expect);
        check("", "");
        check("f", "Zg==");
        check("fo", "Zm8=");
        check("foo", "Zm9v");
        check("hello", "aGVsbG8=");
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn fields_are_read_in_order() {
        let check = |bytes: &[u8], expect: &[Result<Field<'_>, Broken>]| {
            assert_eq!(fields(bytes).collect::<Vec<_>>(), expect);
        };
        let varint = |number, value| {
            Ok(Field {
                number,
                payload: Payload::Varint(value),
            })
        };
        check(&[0x08, 0x96, 0x01], &[varint(1, 150)]);
        check(
            &[0x12, 2, b'h', b'i'],
            &[Ok(Field {
                number: 2,
                payload: Payload::Bytes(b"hi"),
            })],
        );
        check(&[0x08, 1, 0x12, 9, 0], &[varint(1, 1), Err(Broken)]);
        check(&[0x0b], &[Err(Broken)]);
        check(
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[varint(1, u64::MAX)],
        );
        check(&[0x08; 1], &[Err(Broken)]);
    }
}
