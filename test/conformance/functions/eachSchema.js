// Checks a schema and all schemas inside it: {must: be closed | be bounded | be described}. The document is resolved, so the
// target of a property's $ref belongs to the property.
const demands = {
  "be closed": (schema) => isObject(schema) && schema.additionalProperties !== false && "accepts unknown fields: additionalProperties is not false",
  "be bounded": (schema) =>
    schema.type === "string" && !("maxLength" in schema || "enum" in schema || /^\^.*\$$/.test(schema.pattern))
      ? "has neither maxLength nor enum nor a pattern for the whole text"
    : ["integer", "number"].includes(schema.type) && !("minimum" in schema && "maximum" in schema) && !("enum" in schema) ? "has no minimum and maximum"
    : schema.type === "array" && !("maxItems" in schema) && "has no maxItems",
  "be described": (schema, named) => named && !schema.description && "has no description",
};

const isObject = (schema) => schema.type === "object" || "properties" in schema;

export default function eachSchema(root, { must }, { path }) {
  const findings = [];
  const visit = (schema, at, named) => {
    if (schema === null || typeof schema !== "object") return; // additionalProperties may be true or false
    const broken = demands[must](schema, named);
    if (broken) findings.push({ message: `${at.slice(path.length).join(".") || "the schema"} ${broken}`, path: at });
    for (const [name, property] of Object.entries(schema.properties ?? {})) visit(property, [...at, "properties", name], true);
    // The array or map describes its elements.
    for (const inner of ["items", "additionalProperties", "not"]) visit(schema[inner] ?? null, [...at, inner], false);
    for (const several of ["allOf", "oneOf", "anyOf"]) {
      (schema[several] ?? []).forEach((inner, i) => visit(inner, [...at, several, i], false));
    }
  };
  visit(root, [...path], true);
  return findings;
}
