//! Tolerations and taints.

use berth_core::api;
use berth_core::symbols::{Symbol, Symbols};

/// The effect of a taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Repels new pods.
    NoSchedule,
    /// Repels new pods if there is room elsewhere.
    PreferNoSchedule,
    /// Repels new pods and evicts running ones.
    NoExecute,
}

impl Effect {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "NoSchedule" => Some(Self::NoSchedule),
            "PreferNoSchedule" => Some(Self::PreferNoSchedule),
            "NoExecute" => Some(Self::NoExecute),
            _ => None,
        }
    }

    /// Whether a pod that does not tolerate it must stay away.
    #[must_use]
    pub fn is_hard(self) -> bool {
        self != Self::PreferNoSchedule
    }
}

/// A taint of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: Symbol,
    /// Value.
    pub value: Symbol,
    /// Its effect.
    pub effect: Effect,
}

berth_core::trace!(Taint { key, value; effect });

impl Taint {
    /// Compiles a taint; `None` if its effect is unknown.
    pub fn new(symbols: &mut Symbols, taint: &api::Taint) -> Option<Self> {
        Some(Self {
            effect: Effect::from_name(&taint.effect)?,
            key: symbols.intern(&taint.key),
            value: symbols.intern(&taint.value),
        })
    }
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Equal,
    Exists,
    Less,
    Greater,
    Unknown,
}

/// A toleration of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Symbol,
    operator: Operator,
    value: Symbol,
    /// `None` for every effect.
    effect: Option<Effect>,
}

berth_core::trace!(Toleration { key, value; operator, effect });

impl Toleration {
    /// Compiles a toleration; `None` if its effect is unknown.
    pub fn new(symbols: &mut Symbols, toleration: &api::Toleration) -> Option<Self> {
        Some(Self {
            effect: match toleration.effect.as_str() {
                "" => None,
                effect => Some(Effect::from_name(effect)?),
            },
            key: symbols.intern(&toleration.key),
            operator: match toleration.operator.as_str() {
                "" | "Equal" => Operator::Equal,
                "Exists" => Operator::Exists,
                "Lt" => Operator::Less,
                "Gt" => Operator::Greater,
                _ => Operator::Unknown,
            },
            value: symbols.intern(&toleration.value),
        })
    }

    /// Whether a taint is tolerated. Numbers are compared only if `compare_numbers` is on.
    #[must_use]
    pub fn tolerates(&self, symbols: &Symbols, taint: &Taint, compare_numbers: bool) -> bool {
        let number = |symbol: Symbol| {
            let text = symbols.text(symbol);
            // Only the canonical form counts: neither `+1` nor `01`.
            text.parse::<i64>().ok().filter(|number| number.to_string() == text)
        };
        let compare = |holds: fn(&i64, &i64) -> bool| {
            let numbers = number(taint.value).zip(number(self.value));
            compare_numbers && numbers.is_some_and(|(taint, own)| holds(&taint, &own))
        };
        (self.effect.is_none() || self.effect == Some(taint.effect))
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator {
                Operator::Equal => self.value == taint.value,
                Operator::Exists => true,
                Operator::Less => compare(i64::lt),
                Operator::Greater => compare(i64::gt),
                Operator::Unknown => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(toleration: &str, taint: &str, numbers: bool, expected: bool) {
        let mut symbols = Symbols::default();
        let toleration = serde_json::from_str(toleration).unwrap();
        let taint = serde_json::from_str(taint).unwrap();
        let compiled = Toleration::new(&mut symbols, &toleration).unwrap();
        let taint = Taint::new(&mut symbols, &taint).unwrap();
        assert_eq!(
            compiled.tolerates(&symbols, &taint, numbers),
            expected,
            "{toleration:?} {taint:?}"
        );
    }

    #[test]
    fn keys_values_and_effects() {
        let taint = r#"{"key":"gpu","value":"x","effect":"NoSchedule"}"#;
        check(r#"{"operator":"Exists"}"#, taint, false, true);
        check(r#"{"key":"gpu","operator":"Exists"}"#, taint, false, true);
        check(r#"{"key":"cpu","operator":"Exists"}"#, taint, false, false);
        check(r#"{"key":"gpu","value":"x"}"#, taint, false, true);
        check(r#"{"key":"gpu","value":"y","operator":"Equal"}"#, taint, false, false);
        check(r#"{"operator":"Exists","effect":"NoExecute"}"#, taint, false, false);
        check("{}", taint, false, false);
        check("{}", r#"{"key":"gpu","effect":"NoSchedule"}"#, false, true);
    }

    #[test]
    fn numbers_compare_only_behind_their_gate() {
        let taint = r#"{"key":"sla","value":"950","effect":"NoSchedule"}"#;
        let less = r#"{"key":"sla","operator":"Lt","value":"1000"}"#;
        check(less, taint, false, false);
        check(less, taint, true, true);
        check(r#"{"key":"sla","operator":"Gt","value":"0900"}"#, taint, true, false);
        check(r#"{"key":"sla","operator":"Gt","value":"900"}"#, taint, true, true);
    }
}
