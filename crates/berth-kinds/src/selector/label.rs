//! Label selectors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::SelectorError;

/// The operator of one requirement, with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelOperator {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
}

impl LabelRequirement {
    fn matches(&self, value: Option<&str>) -> bool {
        match &self.operator {
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::In(values) => value.is_some_and(|v| values.contains(v)),
            // An object without the label is "not in" any set of values.
            LabelOperator::NotIn(values) => value.is_none_or(|v| !values.contains(v)),
            LabelOperator::GreaterThan(bound) => number(value).is_some_and(|v| v > *bound),
            LabelOperator::LessThan(bound) => number(value).is_some_and(|v| v < *bound),
        }
    }
}

fn number(value: Option<&str>) -> Option<i64> {
    value.and_then(|v| v.parse().ok())
}

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

impl LabelSelector {
    /// Parses the string form, for example `app=web,tier in (a,b),!canary`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser {
            tokens: tokens(text),
            position: 0,
        };
        let mut requirements = Vec::new();
        if parser.peek().is_none() {
            return Ok(LabelSelector { requirements });
        }
        loop {
            requirements.push(parser.requirement()?);
            match parser.next() {
                None => return Ok(LabelSelector { requirements }),
                Some(Token::Comma) => {}
                Some(other) => {
                    return Err(SelectorError::Label(format!(
                        "found '{}', expected: ',' or 'end of string'",
                        other.text()
                    )));
                }
            }
        }
    }

    /// Reads the object form (`matchLabels`, `matchExpressions`). An empty object matches everything.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(LabelRequirement {
                key: key.clone(),
                operator: LabelOperator::In(BTreeSet::from([value])),
            });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let values = expression["values"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect();
            let operator = match expression["operator"].as_str().unwrap_or_default() {
                "In" => LabelOperator::In(values),
                "NotIn" => LabelOperator::NotIn(values),
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(LabelRequirement {
                key: expression["key"].as_str().unwrap_or_default().to_owned(),
                operator,
            });
        }
        Ok(LabelSelector { requirements })
    }

    /// Whether the selector has no requirements.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether the object's `metadata.labels` satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_labels(&object["metadata"]["labels"])
    }

    /// Whether this map of labels (or null) satisfies every requirement.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.requirements
            .iter()
            .all(|r| r.matches(labels.get(&r.key).and_then(Value::as_str)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Token::Word(word) => word,
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
            Token::Not => "!",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let token = match c {
            ' ' | '\t' | '\r' | '\n' => continue,
            ',' => Token::Comma,
            '(' => Token::Open,
            ')' => Token::Close,
            '>' => Token::Greater,
            '<' => Token::Less,
            '!' if chars.next_if_eq(&'=').is_some() => Token::NotEquals,
            '!' => Token::Not,
            '=' if chars.next_if_eq(&'=').is_some() => Token::DoubleEquals,
            '=' => Token::Equals,
            first => {
                let mut word = String::from(first);
                while let Some(next) = chars.next_if(|n| !" \t\r\n,()<>!=".contains(*n)) {
                    word.push(next);
                }
                Token::Word(word)
            }
        };
        tokens.push(token);
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.position)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.position).cloned();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, SelectorError> {
        let absent = self.peek() == Some(&Token::Not);
        if absent {
            self.next();
        }
        let key = match self.next() {
            Some(Token::Word(key)) => key,
            other => {
                return Err(SelectorError::Label(format!(
                    "found '{}', expected: {}",
                    other.as_ref().map_or("", Token::text),
                    if absent {
                        "identifier"
                    } else {
                        "!, identifier, or 'end of string'"
                    },
                )));
            }
        };
        check_key(&key)?;
        if absent {
            let operator = LabelOperator::DoesNotExist;
            return Ok(LabelRequirement { key, operator });
        }
        let operator = self.operator(&key)?;
        Ok(LabelRequirement { key, operator })
    }

    fn operator(&mut self, key: &str) -> Result<LabelOperator, SelectorError> {
        if matches!(self.peek(), None | Some(Token::Comma)) {
            return Ok(LabelOperator::Exists);
        }
        match self.next() {
            Some(Token::Equals | Token::DoubleEquals) => {
                Ok(LabelOperator::In(BTreeSet::from([self.exact_value(key)?])))
            }
            Some(Token::NotEquals) => Ok(LabelOperator::NotIn(BTreeSet::from([self.exact_value(key)?]))),
            Some(Token::Greater) => Ok(LabelOperator::GreaterThan(self.bound(key)?)),
            Some(Token::Less) => Ok(LabelOperator::LessThan(self.bound(key)?)),
            Some(Token::Word(word)) if word == "in" => Ok(LabelOperator::In(self.values(key)?)),
            Some(Token::Word(word)) if word == "notin" => Ok(LabelOperator::NotIn(self.values(key)?)),
            other => Err(SelectorError::Label(format!(
                "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                other.as_ref().map_or("", Token::text)
            ))),
        }
    }

    /// `a=` requires the empty value.
    fn exact_value(&mut self, key: &str) -> Result<String, SelectorError> {
        match self.peek() {
            None | Some(Token::Comma) => Ok(String::new()),
            Some(Token::Word(_)) => match self.next() {
                Some(Token::Word(value)) => check_value(key, value),
                _ => Ok(String::new()),
            },
            Some(other) => Err(SelectorError::Label(format!(
                "found '{}', expected: identifier",
                other.text()
            ))),
        }
    }

    fn bound(&mut self, key: &str) -> Result<i64, SelectorError> {
        let value = self.exact_value(key)?;
        value.parse().map_err(|_| {
            SelectorError::Label(format!(
                "values[0][{key}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
            ))
        })
    }

    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, SelectorError> {
        let found = |token: Option<&Token>, expected: &str| {
            SelectorError::Label(format!(
                "found '{}', expected: {expected}",
                token.map_or("", Token::text)
            ))
        };
        let open = self.next();
        if open != Some(Token::Open) {
            let found = open.as_ref().map_or("", Token::text);
            return Err(SelectorError::Label(format!("found '{found}' expected: '('")));
        }
        let mut values = BTreeSet::new();
        // Two commas, or a comma next to a parenthesis, denote the empty value.
        let mut after_separator = true;
        loop {
            match self.next() {
                Some(Token::Word(value)) if after_separator => {
                    values.insert(check_value(key, value)?);
                    after_separator = false;
                }
                Some(Token::Comma) => {
                    if after_separator {
                        values.insert(String::new());
                    }
                    after_separator = true;
                }
                Some(Token::Close) => {
                    if after_separator {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                other => return Err(found(other.as_ref(), "',', or ')'")),
            }
        }
    }
}

const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
/// The longest name part of a label key, and the longest label value.
const LABEL_LENGTH_MAX: usize = 63;

fn is_label_word(word: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends_well(word.chars().next())
        && ends_well(word.chars().next_back())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn check_key(key: &str) -> Result<(), SelectorError> {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    let problem = if name.len() > LABEL_LENGTH_MAX {
        "name part must be no more than 63 bytes"
    } else if !is_label_word(name) {
        LABEL_NAME
    } else {
        return Ok(());
    };
    Err(SelectorError::Label(format!(
        "<nil>: Invalid value: \"{key}\": {problem}"
    )))
}

fn check_value(key: &str, value: String) -> Result<String, SelectorError> {
    let problem = if value.len() > LABEL_LENGTH_MAX {
        "must be no more than 63 bytes"
    } else if !value.is_empty() && !is_label_word(&value) {
        LABEL_VALUE
    } else {
        return Ok(value);
    };
    Err(SelectorError::Label(format!(
        "values[0][{key}]: Invalid value: \"{value}\": {problem}"
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_match() {
        let labels = json!({"app": "web", "tier": "front", "n": "5", "blank": "", "k8s.io/x": "1"});
        let check = |selector: &str, expect: bool| {
            let parsed = LabelSelector::parse(selector).expect(selector);
            assert_eq!(parsed.matches_labels(&labels), expect, "{selector}");
        };
        check("", true);
        check("app=web", true);
        check("app == web , tier=front", true);
        check("app!=web", false);
        check("missing!=web", true);
        check("app", true);
        check("!app", false);
        check("!missing", true);
        check("app in (web,db)", true);
        check("app in (db)", false);
        check("app notin (db),tier", true);
        check("missing notin (a)", true);
        check("missing in (a,)", false);
        check("blank=", true);
        check("blank in (,a)", true);
        check("n>4", true);
        check("n<5", false);
        check("k8s.io/x=1", true);
    }

    #[test]
    fn bad_label_selectors_are_refused() {
        let check = |selector: &str, expect: &str| {
            let error = LabelSelector::parse(selector).expect_err(selector).to_string();
            assert!(error.contains(expect), "{selector}: {error}");
        };
        check("a,,b", "unable to parse requirement: found ','");
        check("a in b", "expected: '('");
        check("a in (b", "expected: ',', or ')'");
        check("a=b c", "found 'c', expected: ',' or 'end of string'");
        check("a=-b", "a valid label must be an empty string or consist of");
        check("-a=b", "name part must consist of alphanumeric characters");
        check("a>x", "the value must be an integer");
        check("=a", "found '='");
    }

    #[test]
    fn object_form_matches() {
        let labels = json!({"app": "web"});
        let check = |selector: Value, expect: bool| {
            let parsed = LabelSelector::from_object(&selector).unwrap();
            assert_eq!(parsed.matches_labels(&labels), expect, "{selector}");
        };
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}),
            true,
        );
        check(
            json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}),
            true,
        );
        let bad = json!({"matchExpressions": [{"key": "x", "operator": "Near"}]});
        let error = LabelSelector::from_object(&bad).unwrap_err().to_string();
        assert_eq!(error, "\"Near\" is not a valid label selector operator");
    }
}
