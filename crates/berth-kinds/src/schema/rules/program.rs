//! A compiled rule with bounded evaluation.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::common::types::{CelBool, CelString};
use cel::{Context, DeclarationError, Env, ExecutionError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::schema::pattern;

/// Maximum length of a rule.
const RULE_BYTES_MAX: usize = 4096;
/// Maximum nesting of brackets and unary operators. The parser recurses once for each.
const BRACKETS_MAX: usize = 24;
/// Maximum depth of an expression.
const DEPTH_MAX: usize = 100;
/// Maximum number of evaluation steps for one object: about a second.
const STEPS_MAX: f64 = 10_000_000.0;
/// The cost of a regular expression search in steps.
const SEARCH_STEPS: f64 = 200.0;

/// Functions that rules may call, in addition to operators. Other extensions of CEL, and functions for times, are
/// not supported.
const FUNCTIONS: [&str; 24] = [
    "bool",
    "charAt",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "indexOf",
    "int",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "replace",
    "reverse",
    "size",
    "split",
    "startsWith",
    "string",
    "substring",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "has",
];

/// Why a rule is not supported or cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It is not CEL.
    #[error("compilation failed: {0}")]
    Syntax(String),
    /// It is longer or deeper than allowed.
    #[error(
        "is too long or too deep: a rule may have {RULE_BYTES_MAX} bytes and {BRACKETS_MAX} brackets in each other"
    )]
    TooLarge,
    /// It calls an unsupported function.
    #[error("calls {0}, which this server does not support: remove the rule to use the definition here")]
    Function(String),
    /// It uses an unknown name.
    #[error("undeclared reference to '{0}'")]
    Variable(String),
    /// It should be evaluated on new objects too.
    #[error("optionalOldSelf is not supported by this server: remove it to use the definition here")]
    OptionalOldSelf,
    /// It would loop for too long.
    #[error("it would take too long on a value of this size")]
    TooCostly,
    /// It has no value for this object.
    #[error("{0}")]
    Execution(String),
}

/// What a rule is evaluated on.
pub(super) struct Input {
    pub(super) value: cel::Value,
    pub(super) old: Option<cel::Value>,
    /// The length of the longest part.
    pub(super) longest: usize,
}

/// A compiled rule.
pub(super) struct Program {
    program: cel::Program,
    cost: Cost,
    /// Whether it compares with the previous object.
    pub(super) compares: bool,
}

/// The language of rules: CEL with its string functions.
pub(super) struct Language {
    environment: Arc<Env>,
}

impl Language {
    pub(super) fn new() -> Self {
        let mut environment = Env::stdlib();
        let declared = declare(&mut environment);
        // A rule that needs a missing function cannot be evaluated, and so is violated.
        debug_assert_eq!(declared, Ok(()));
        Self {
            environment: Arc::new(environment),
        }
    }

    pub(super) fn compile(&self, text: &str) -> Result<Program, RuleError> {
        if text.len() > RULE_BYTES_MAX || is_too_deep(text) {
            return Err(RuleError::TooLarge);
        }
        // The parser is generated from a grammar and the rule is untrusted input.
        let parsed = catch_unwind(AssertUnwindSafe(|| self.environment.compile(text)));
        let program = match parsed {
            Ok(Ok(program)) => program,
            Ok(Err(error)) => return Err(RuleError::Syntax(error.to_string())),
            Err(_) => return Err(RuleError::Syntax("the rule cannot be parsed".to_owned())),
        };
        let mut walk = Walk::default();
        let cost = walk.cost(program.expression(), 0)?;
        Ok(Program {
            compares: walk.compares,
            program,
            cost,
        })
    }

    pub(super) fn evaluate(&self, program: &Program, input: &Input) -> Result<cel::Value, RuleError> {
        if program.cost.steps(input.longest) > STEPS_MAX {
            return Err(RuleError::TooCostly);
        }
        let mut context = Context::with_env(self.environment.clone());
        context.add_variable_from_value("self", input.value.clone());
        if let Some(old) = &input.old {
            context.add_variable_from_value("oldSelf", old.clone());
        }
        let executed = catch_unwind(AssertUnwindSafe(|| program.program.execute(&context)));
        match executed {
            Ok(answer) => answer.map_err(|error| RuleError::Execution(error.to_string())),
            Err(_) => Err(RuleError::Execution("the rule cannot be worked out".to_owned())),
        }
    }
}

/// Adds the string functions.
fn declare(environment: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(environment, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    cel::add_member_overload!(environment, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    environment.add_extension(cel::extensions::strings)
}

/// Whether a text contains a match of the pattern, which uses Go syntax like the schemas around it.
fn matches(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let compiled = pattern::compile(pattern.inner()).map_err(|error| ExecutionError::FunctionError {
        function: "matches".to_owned(),
        message: error.to_string(),
    })?;
    Ok(CelBool::from(compiled.is_match(text.inner())))
}

/// Whether the parser would recurse too deeply. Brackets in strings count too: no rule needs that many.
fn is_too_deep(text: &str) -> bool {
    let (mut open, mut signs, mut choices) = (0_usize, 0, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'?' => choices += 1,
            _ => {}
        }
        signs = if matches!(byte, b'!' | b'-') { signs + 1 } else { 0 };
        if open > BRACKETS_MAX || signs > BRACKETS_MAX || choices > BRACKETS_MAX {
            return true;
        }
    }
    false
}

/// How many parts of an expression are evaluated: the number of parts at each depth of nested loops.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cost {
    parts: Vec<f64>,
    /// The length of the longest list literal in the rule, and how often lists are concatenated.
    literal: usize,
    additions: usize,
}

impl Cost {
    fn add(&mut self, loops: usize, parts: f64) {
        if self.parts.len() <= loops {
            self.parts.resize(loops + 1, 0.0);
        }
        self.parts[loops] += parts;
    }

    /// The number of steps on values whose longest part has this length.
    fn steps(&self, longest: usize) -> f64 {
        let rounds = longest.max(self.literal).max(1) as f64 * (self.additions + 1) as f64;
        let powers = std::iter::successors(Some(1.0), |power| Some(power * rounds));
        self.parts
            .iter()
            .zip(powers)
            .map(|(parts, rounds)| parts * rounds)
            .sum()
    }
}

#[derive(Default)]
struct Walk {
    cost: Cost,
    compares: bool,
    bound: Vec<String>,
    depth: usize,
}

impl Walk {
    fn cost(&mut self, expression: &IdedExpr, loops: usize) -> Result<Cost, RuleError> {
        self.visit(expression, loops)?;
        Ok(std::mem::take(&mut self.cost))
    }

    fn visit(&mut self, expression: &IdedExpr, loops: usize) -> Result<(), RuleError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(RuleError::TooLarge);
        }
        self.cost.add(loops, 1.0);
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => self.variable(name)?,
            Expr::Select(select) => self.visit(&select.operand, loops)?,
            Expr::Call(call) => {
                self.function(&call.func_name, loops)?;
                for part in call.target.iter().map(|target| &**target).chain(&call.args) {
                    self.visit(part, loops)?;
                }
            }
            Expr::List(list) => {
                self.cost.literal = self.cost.literal.max(list.elements.len());
                for element in &list.elements {
                    self.visit(element, loops)?;
                }
            }
            Expr::Map(map) => {
                self.cost.literal = self.cost.literal.max(map.entries.len());
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            self.visit(&entry.key, loops)?;
                            self.visit(&entry.value, loops)?;
                        }
                        EntryExpr::StructField(field) => self.visit(&field.value, loops)?,
                    }
                }
            }
            Expr::Struct(made) => return Err(RuleError::Function(made.type_name.clone())),
            Expr::Comprehension(each) => {
                self.visit(&each.iter_range, loops)?;
                self.visit(&each.accu_init, loops)?;
                let before = self.bound.len();
                self.bound.extend([each.iter_var.clone(), each.accu_var.clone()]);
                self.bound.extend(each.iter_var2.clone());
                self.visit(&each.loop_cond, loops + 1)?;
                self.visit(&each.loop_step, loops + 1)?;
                self.visit(&each.result, loops)?;
                self.bound.truncate(before);
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn variable(&mut self, name: &str) -> Result<(), RuleError> {
        // A leading dot refers to the outermost scope.
        let name = name.trim_start_matches('.');
        self.compares |= name == "oldSelf";
        let types = [
            "bool",
            "bytes",
            "double",
            "int",
            "list",
            "map",
            "null_type",
            "string",
            "type",
            "uint",
        ];
        let is_known = ["self", "oldSelf"].contains(&name) || types.contains(&name);
        if is_known || self.bound.iter().any(|bound| bound == name) {
            return Ok(());
        }
        Err(RuleError::Variable(name.to_owned()))
    }

    fn function(&mut self, name: &str, loops: usize) -> Result<(), RuleError> {
        match name {
            "matches" => self.cost.add(loops, SEARCH_STEPS),
            "_+_" => self.cost.additions += 1,
            _ => {}
        }
        // Operators have names that cannot be written in source.
        let is_operator = name.starts_with(['_', '@', '!', '-']);
        if is_operator || FUNCTIONS.contains(&name) {
            return Ok(());
        }
        Err(RuleError::Function(name.to_owned()))
    }
}
