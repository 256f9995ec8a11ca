"""A mail server and a payment gateway of your own; Enter shows what they counted, an empty input's end stops them."""

import sys

from counterfoil.testing.mail_client import CountingMailServer
from counterfoil.testing.provider_client import CountingProvider

if __name__ == "__main__":
    with CountingMailServer() as mailbox, CountingProvider(module="counterfoil.testing.gateway") as gateway:
        print(f"export HIRING_MAIL_PORT={mailbox.port} HIRING_GATEWAY={gateway.url}", flush=True)
        for _ in sys.stdin:
            for mail in mailbox.mails():
                print(f"  {mail.number}. to {mail.recipients[0]}: {mail.subject}")
            print(f"  {gateway.count()} charges", flush=True)
