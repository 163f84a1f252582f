//! One rule, ready to be evaluated within bounds.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::common::types::{CelBool, CelString};
use cel::{Context, DeclarationError, Env, ExecutionError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::schema::pattern;

/// The longest rule.
const RULE_BYTES_MAX: usize = 4096;
/// Brackets in brackets, and signs before signs. The parser goes down by as many levels for each.
const BRACKETS_MAX: usize = 24;
/// Levels of an expression.
const DEPTH_MAX: usize = 100;
/// Parts of an expression that are worked out for one object: about a second.
const STEPS_MAX: f64 = 10_000_000.0;
/// What a search by a regular expression counts for.
const SEARCH_STEPS: f64 = 200.0;

/// Functions that rules may call, besides operators. Those that others add to CEL, and those about times, are not here.
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

/// Why a rule cannot be kept, or not be worked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It is not CEL.
    #[error("compilation failed: {0}")]
    Syntax(String),
    /// It is longer or deeper than rules may be.
    #[error(
        "is too long or too deep: a rule may have {RULE_BYTES_MAX} bytes and {BRACKETS_MAX} brackets in each other"
    )]
    TooLarge,
    /// It calls a function that is not here.
    #[error("calls {0}, which this server does not have: take the rule out to use the definition here")]
    Function(String),
    /// It names something that is not there.
    #[error("undeclared reference to '{0}'")]
    Variable(String),
    /// It wants to be evaluated on new objects too.
    #[error("optionalOldSelf is not known to this server: take it out to use the definition here")]
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

/// A rule that was compiled.
pub(super) struct Program {
    program: cel::Program,
    cost: Cost,
    /// Whether it is about a change.
    pub(super) compares: bool,
}

/// What rules are written in: CEL with its functions for texts.
pub(super) struct Language {
    environment: Arc<Env>,
}

impl Language {
    pub(super) fn new() -> Self {
        let mut environment = Env::stdlib();
        let declared = declare(&mut environment);
        // Rules that need what is missing cannot be worked out, and so do not hold.
        debug_assert_eq!(declared, Ok(()));
        Self {
            environment: Arc::new(environment),
        }
    }

    pub(super) fn compile(&self, text: &str) -> Result<Program, RuleError> {
        if text.len() > RULE_BYTES_MAX || is_too_deep(text) {
            return Err(RuleError::TooLarge);
        }
        // The parser is made from a grammar by a program, and the rule comes from anybody.
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

/// Adds the functions for texts.
fn declare(environment: &mut Env) -> Result<(), DeclarationError> {
    cel::add_overload!(environment, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    cel::add_member_overload!(environment, fn matches: (CelString, CelString) -> Result<CelBool>)?;
    environment.add_extension(cel::extensions::strings)
}

/// Whether a text has a part like the pattern, which is one of Go, as in the schemas around the rules.
fn matches(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let compiled = pattern::compile(pattern.inner()).map_err(|error| ExecutionError::FunctionError {
        function: "matches".to_owned(),
        message: error.to_string(),
    })?;
    Ok(CelBool::from(compiled.is_match(text.inner())))
}

/// Whether the parser would go down too far. Brackets in texts count too: nobody needs so many.
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

/// How many parts of an expression are worked out: for each number of loops in each other, the parts that stand so deep.
#[derive(Clone, Debug, Default, PartialEq)]
struct Cost {
    parts: Vec<f64>,
    /// The length of the longest list that the rule itself writes down, and how often lists are put together.
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

    /// The steps on values of which the longest has this length.
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
        // A dot before a name asks for the outermost.
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
        // Operators have names that nobody can write.
        let is_operator = name.starts_with(['_', '@', '!', '-']);
        if is_operator || FUNCTIONS.contains(&name) {
            return Ok(());
        }
        Err(RuleError::Function(name.to_owned()))
    }
}
