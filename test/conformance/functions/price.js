// An operation has a price and declares how it is paid, or it is free and open.
export default function price(operation) {
  const priced = "x-payment-info" in operation;
  const name = operation.operationId;
  const responses = operation.responses ?? {};
  const findings = [];
  if (!priced && !(Array.isArray(operation.security) && operation.security.length === 0)) {
    findings.push({ message: `${name} has neither a price (x-payment-info) nor security [], which says that it is free` });
  }
  if (!priced && responses["402"]) {
    findings.push({ message: `${name} is free but declares 402` });
  }
  if (priced && !responses["402"]?.headers?.["PAYMENT-REQUIRED"]) {
    findings.push({ message: `${name} is priced but declares no 402 with the header PAYMENT-REQUIRED` });
  }
  if (priced && !responses["200"]?.headers?.["PAYMENT-RESPONSE"]) {
    findings.push({ message: `${name} is priced but declares no 200 with the header PAYMENT-RESPONSE` });
  }
  return findings;
}
