<?php
// Values and fields of a newer server do not break the SDK, and an unknown charge is not a false.
declare(strict_types=1);

require_once 'GuzzleHttp/autoload.php'; // Debian's package
spl_autoload_register(function (string $class): void {
    if (str_starts_with($class, 'Parley\\')) {
        require 'bin/generators/php/lib/' . strtr(substr($class, 7), '\\', '/') . '.php';
    }
});
set_error_handler(function (int $level, string $message, string $file, int $line): never {
    throw new ErrorException($message, 0, $level, $file, $line);
});

function equal(mixed $want, mixed $got): void
{
    if ($want !== $got) {
        throw new Exception(var_export($got, true) . ', want ' . var_export($want, true));
    }
}

$newer = json_decode(file_get_contents('test/conformance/newer.json'));
$error = Parley\ObjectSerializer::deserialize($newer->error, Parley\Model\ParleyError::class, []);
equal('code_of_a_newer_server', $error->getCode());
equal(null, $error->getCharged());
$unread = Parley\ObjectSerializer::deserialize($newer->unread, Parley\Model\UnreadPage::class, []);
equal('type_of_a_newer_server', $unread->getNotices()[0]->getType());
equal('type_of_a_newer_server', $unread->getMessages()[0]->getAbout()->getType());

// The body of rotateKey may be left out.
equal('', (string) (new Parley\Api\AccountApi())->rotateKeyRequest()->getBody());

// PHP loads a file when its class is first used.
foreach (new RecursiveIteratorIterator(new RecursiveDirectoryIterator('bin/generators/php/lib', FilesystemIterator::SKIP_DOTS)) as $file) {
    require_once $file->getPathname();
}
